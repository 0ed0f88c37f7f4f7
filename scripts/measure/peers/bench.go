package peers

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

// An effectOf one put: when it was sent, its revision, and when the first datagram reached the new
// endpoint.
type effectOf struct {
	put, served time.Duration // since the machine has started
	revision    int64
}

// A bench is what the rows share.
type bench struct {
	*measure.Site
	options

	backends *process.Process
	behind   load.Ports   // of the backends
	written  load.Clients // how the present clients and backends are
	etcdURL  string
	etcd     *clientv3.Client
	proxies  []*proxy

	directRate float64          // see fixedRate
	watcher    *process.Process // see effect
	stampedBy  int              // the backend behind the stamp service
	failing    uint16           // the first of the ports of the services that have an endpoint that fails
}

// fewer is how many there are of something of which there are n, unless it is only to be tried out.
func (b *bench) fewer(n int) int { return max(1, n/max(1, b.fewerBy)) }

// clients is how many there are where a row's name does not say.
const clients = 32
