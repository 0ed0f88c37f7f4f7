package apisource

import (
	"context"
	"fmt"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/records"
	"kubeproxy/config/remote"
	"kubeproxy/internal/backoff"
	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// maxBackoff is the longest pause between two attempts. A server has thousands of nodes to answer.
const maxBackoff = 5 * time.Second

// A Source follows one API server: it is a [config.Source]. Make it with [New].
type Source struct {
	cfg    Config
	client *client
	resync config.Resyncs

	log *records.OutageLog // the status

	// The rest belongs to the goroutine in Run.
	out       chan<- registry.Update
	resources map[string]*resource // by their paths: all that are known, or are being read for the first time
	inForce   []*resource          // those that Updates are made of: one session's

	unlisted *lograte.Limiter[string]  // lines about lists that fail beside a watch, by their resource
	setbacks *lograte.Limiter[setback] // lines about setbacks
}

// New checks cfg, reads the files that it names, and returns a source that does nothing yet.
func New(cfg Config) (*Source, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg:       cfg,
		resync:    config.NewResyncs(),
		resources: make(map[string]*resource),
		log:       records.NewOutageLog(maxBackoff, causeNames()...),
		unlisted:  lograte.Lasting[string](5),
		setbacks:  lograte.Lasting[setback](5),
	}
	s.client, err = newClient(&s.cfg)
	return s, err
}

// Name implements [config.Source].
func (s *Source) Name() string { return "api" }

// Resync asks for full lists now, as the sync period will sooner or later. It does not wait for them. While there is no
// session nothing is lost: the next begins with lists.
func (s *Source) Resync() { s.resync.Ask() }

// Run keeps out informed of the services and endpoints of the server until ctx ends, and then returns nil. It never gives up:
// while the server cannot be read, nothing is sent. It may run once at a time.
func (s *Source) Run(ctx context.Context, out chan<- registry.Update) error {
	s.out = out
	defer s.client.shut()
	glog.Infof("watching API server at %s", s.cfg.Server)
	if s.cfg.Insecure {
		glog.Warningf("the certificate of the API server is not checked: whoever answers at %s is believed, and shown the token", s.cfg.Server)
	}
	if !remote.IsHTTPS(s.cfg.Server) && !s.cfg.Token.IsZero() {
		glog.Warningf("the token crosses the network in the clear: the URL of the API server is not https")
	}
	for wait := (backoff.Pauses{Most: maxBackoff}); ; backoff.Sleep(ctx, wait.Next()) {
		stood, err := s.attend(ctx)
		if ctx.Err() != nil {
			break
		}
		if stood && s.log.End(int(causeOf(err))) { // else something breaks it again and again
			wait.Reset()
		}
		s.trouble(err)
	}
	s.log.Stopped()
	return nil
}

// send hands one Update on, with all changes since the last. A SET carries everything instead.
func (s *Source) send(ctx context.Context, set bool, at time.Time) {
	u := registry.Update{Set: set, Revision: int64(s.newest()), Received: at}
	for _, r := range s.inForce {
		part := r.records.Update(set, u.Revision, at)
		u.Services = append(u.Services, part.Services...)
		u.Endpoints = append(u.Endpoints, part.Endpoints...)
	}
	select {
	case s.out <- u:
	case <-ctx.Done():
		return
	}
	s.log.Edit(func(st *config.Status) { st.Ready, st.Revision = true, u.Revision })
	s.describe()
}

// newest is the newest version of any resource.
func (s *Source) newest() (v version) {
	for _, r := range s.inForce {
		v = max(v, r.version)
	}
	return v
}

// describe enters into the status what is in force, and how old it may be: as old as the oldest of its resources.
func (s *Source) describe() {
	s.log.Edit(func(st *config.Status) {
		st.Services, st.Endpoints, st.Rejected, st.Rejections = 0, 0, 0, nil
		st.Warned, st.Warnings, st.Loss = 0, nil, config.Loss{}
		for i, r := range s.inForce {
			r.records.Describe(&r.status, time.Now())
			st.Services += r.status.Services
			st.Endpoints += r.status.Endpoints
			st.Rejected += r.status.Rejected
			st.Rejections = append(st.Rejections, r.status.Rejections...)
			st.Warned += r.status.Warned
			st.Warnings = append(st.Warnings, r.status.Warnings...)
			if r.status.Loss.Held > 0 { // services are of one resource only
				st.Loss = r.status.Loss
			}
			if i == 0 || r.current.Before(st.Current) {
				st.Current = r.current
			}
			if i == 0 || r.listed.Before(st.Listed) {
				st.Listed = r.listed
			}
		}
		st.Rejections = st.Rejections[:min(len(st.Rejections), config.MaxRejections)]
		st.Warnings = st.Warnings[:min(len(st.Warnings), config.MaxRejections)]
	})
}

// versions lists the resources in force and their versions, for the log.
func (s *Source) versions() (line string) {
	for i, r := range s.inForce {
		if i > 0 {
			line += ", "
		}
		line += fmt.Sprintf("%s at version %v", r.name, r.version)
	}
	return line
}
