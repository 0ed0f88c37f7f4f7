package etcdsource

import (
	"fmt"
	"time"

	"kubeproxy/config"
)

// Status tells how the source is doing. Any goroutine may ask.
func (s *Source) Status() config.Status { return s.log.Status() }

// causeNames lists the short names of the causes.
func causeNames() (names []string) {
	for cause := range NumCauses {
		names = append(names, cause.String())
	}
	return names
}

// trouble notes that etcd cannot be reached or used now. What is known goes on being served.
func (s *Source) trouble(err error) {
	cause, reason := causeOf(err), config.OneLine(err.Error())
	if advice := s.cfg.advice(cause, reason); advice != "" {
		reason += " (" + advice + ")"
	}
	s.log.Failed(int(cause), fmt.Sprintf(causes[cause].line, s.cfg.Endpoints), reason)
}

// recovered ends an outage in the log, loudly if it began so.
func (s *Source) recovered(away time.Duration, told bool, news string) {
	s.log.Recovered(fmt.Sprintf("etcd at %v answers again after %v: %s", s.cfg.Endpoints, away.Round(time.Millisecond), news), told)
}

// well notes that etcd answers an established session.
func (x *session) well() {
	if away, told := x.log.Reads(); away > 0 {
		x.recovered(away, told, fmt.Sprintf("the watch has outlived it, at revision %d", x.heard))
	}
}
