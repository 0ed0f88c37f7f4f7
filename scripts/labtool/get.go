package main

import (
	"context"
	"io"
	"net/http"
	"os"

	"kubeproxy/scripts/internal/try"
)

// runGet prints a page.
func runGet(ctx context.Context, args []string) (err error) {
	defer try.Catch(&err)
	if len(args) != 1 {
		return errUsage
	}
	request := try.Get(http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil))
	response := try.Get(http.DefaultClient.Do(request))
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
