package main

import (
	"cmp"
	"errors"
	"fmt"

	"kubeproxy/cmd/internal/control"
	"kubeproxy/internal/takeover"
)

// contradiction reports flags that contradict each other.
func (o *options) contradiction() error {
	if o.proxy.DialTimeout > o.proxy.DialTotalTimeout {
		return fmt.Errorf("-dial_timeout (%v) is more than -dial_total_timeout (%v)", o.proxy.DialTimeout, o.proxy.DialTotalTimeout)
	}
	if err := cmp.Or(o.limitsContradiction(), o.operatorsContradiction()); err != nil {
		return err
	}
	if o.takeover != "" {
		if err := takeover.CheckPath(o.takeover); err != nil {
			return fmt.Errorf("-takeover: %w", err)
		}
	}
	if path := o.controlPath(); path != "" {
		if err := control.CheckPath(path); err != nil {
			return fmt.Errorf("-control: %w", err)
		}
		if path == o.takeover {
			return fmt.Errorf("-control and -takeover are the same path: %q", path)
		}
	}
	return o.source.contradiction()
}

// limitsContradiction reports limits that contradict each other.
func (o *options) limitsContradiction() error {
	for _, l := range []struct {
		part, whole         int
		partFlag, wholeFlag string
	}{
		{o.proxy.MaxConnectionsPerService, o.proxy.MaxConnections, "-max_connections_per_service", "-max_connections"},
		{o.proxy.MaxUDPSessionsPerService, o.proxy.MaxUDPSessions, "-max_udp_sessions_per_service", "-max_udp_sessions"},
	} {
		if l.whole != 0 && l.part > l.whole {
			return fmt.Errorf("%s (%d) is more than %s (%d)", l.partFlag, l.part, l.wholeFlag, l.whole)
		}
	}
	return nil
}

// operatorsContradiction reports flags about the operators' pages that contradict each other.
func (o *options) operatorsContradiction() error {
	healthz, metrics, only := o.operators.Healthz.IsValid(), o.operators.Metrics.IsValid(), o.operators.MetricsOnly
	switch {
	case only.IsValid() && only.Port() != 0 && only == o.operators.Metrics:
		return errors.New("-metrics_only_bind_address and -metrics_bind_address are the same address")
	case only.IsValid() && only.Port() != 0 && only == o.operators.Healthz:
		return errors.New("-metrics_only_bind_address and -healthz_bind_address are the same address")
	case !metrics && o.operators.Profiling:
		return errors.New("-profiling means nothing without -metrics_bind_address")
	case !metrics && !only.IsValid() && !o.metricsEndpoints.None():
		return errors.New("-metrics_endpoints means nothing without -metrics_bind_address or -metrics_only_bind_address")
	case !metrics && o.pageActions != "":
		return errors.New("-page_actions means nothing without -metrics_bind_address")
	case o.connectionStarts && o.connectionLog == "":
		return errors.New("-connection_log_starts means nothing without -connection_log")
	case !metrics && !healthz && o.configMaxAge != 0:
		return errors.New("-config_max_age means nothing without -healthz_bind_address or -metrics_bind_address")
	}
	return nil
}
