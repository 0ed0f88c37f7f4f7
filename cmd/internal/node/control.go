package node

import (
	"context"
	"fmt"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/control"
	"kubeproxy/internal/ownersocket"
)

// checkControl returns an error if the control socket cannot be made, as far as that is known before it is.
func (o *Options) checkControl() error {
	if o.Control == "" {
		return nil
	}
	if err := ownersocket.Check(o.Control); err != nil {
		return fmt.Errorf("-control: %w", err)
	}
	return nil
}

// answerControl answers operators at the control socket until ctx ends. That operators cannot act is no reason not to serve clients.
func (o *Options) answerControl(ctx context.Context, node control.Node) {
	server, err := control.Listen(o.Control)
	if err != nil {
		glog.Errorf("-control: %v; this process cannot be controlled", err)
		return
	}
	server.Run(ctx, node)
}
