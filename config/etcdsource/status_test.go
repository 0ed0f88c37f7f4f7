package etcdsource

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAReasonIsWithoutItsFrame(t *testing.T) {
	err := explain(t.Context(), status.Error(codes.Unavailable, "connection refused"))
	if err.Error() != "connection refused" {
		t.Errorf("%q; want it without gRPC's frame", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, context.Canceled)
	defer cancel()
	if err := explain(ctx, status.Error(codes.DeadlineExceeded, "x")); !errors.Is(err, context.Canceled) || causeOf(err) != Silent {
		t.Errorf("%v; want the cause", err)
	}
}
