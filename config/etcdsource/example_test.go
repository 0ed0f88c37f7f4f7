package etcdsource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdsource"
	"kubeproxy/internal/process"
	"kubeproxy/registry"
)

// A source, from the empty registry to the first service and back.
func Example() {
	etcd, stop := startEtcd()
	defer stop()

	source, err := etcdsource.New(etcdsource.Config{Endpoints: []string{etcd.URL()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	updates := make(chan registry.Update)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = source.Run(ctx, updates) }) // nil, once ctx has ended

	u := <-updates
	fmt.Println("SET:", u.Set, "services:", len(u.Services))

	write(etcd, clientv3.OpPut("/registry/services/specs/mysql", `{"kind":"Service","apiVersion":"v1beta1","port":3306}`))
	u = <-updates
	for _, change := range u.Services {
		fmt.Println("ADD", change.Name, "on port", change.Value.Ports[0].Number)
	}

	write(etcd, clientv3.OpDelete("/registry/services/specs/mysql"))
	u = <-updates
	for _, change := range u.Services {
		fmt.Println("REMOVE", change.Name, change.Value == nil)
	}
	// Output:
	// SET: true services: 0
	// ADD mysql on port 3306
	// REMOVE mysql true
}

// startEtcd is what the example needs and shows nothing.
func startEtcd() (etcd *process.Etcd, stop func()) {
	dir, err := os.MkdirTemp("", "example")
	etcd = &process.Etcd{Name: "default", Data: filepath.Join(dir, "data"), Logs: dir}
	if err := errors.Join(err, etcd.ChoosePorts(20000, 32000), etcd.Start()); err != nil {
		panic(err)
	}
	return etcd, func() {
		etcd.Process.Kill()
		_ = os.RemoveAll(dir) // left-overs in a temporary directory
	}
}

// write stands for all writers of the registry.
func write(etcd *process.Etcd, op clientv3.Op) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.URL()}})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if _, err := c.Do(context.Background(), op); err != nil {
		panic(err)
	}
}
