package config_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// A source tells of two services and takes one of them back. One handler hears of it.
func Example() {
	told := make(chan registry.Batch)
	broadcaster := config.NewBroadcaster()
	broadcaster.Add(config.HandlerFunc(func(b registry.Batch) { told <- b }))

	mux := config.NewMux(broadcaster)
	updates := mux.Channel("notebook")

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mux.Run(ctx); err != nil {
			fmt.Println(err)
		}
	})

	web := registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}
	dns := registry.Name{Namespace: registry.DefaultNamespace, Name: "dns"}
	for _, update := range []registry.Update{
		{Set: true, Services: []registry.Change[registry.Service]{
			{Name: web, Value: &registry.Service{Name: web, Ports: []registry.Port{{Number: 80}}}},
			{Name: dns, Value: &registry.Service{Name: dns, Ports: []registry.Port{{Number: 53, Protocol: registry.UDP}}}},
		}},
		{Services: []registry.Change[registry.Service]{{Name: dns}}}, // no value: a REMOVE
	} {
		updates <- update
		batch := <-told
		fmt.Println("a batch:")
		for _, name := range slices.SortedFunc(maps.Keys(batch.Services), registry.Name.Compare) {
			if service := batch.Services[name]; service != nil {
				fmt.Printf("  %s is wanted on %v\n", name, service.Ports[0].ID())
			} else {
				fmt.Printf("  %s is gone\n", name)
			}
		}
	}
	stop()
	running.Wait()
	// Output:
	// a batch:
	//   dns is wanted on udp port 53
	//   web is wanted on tcp port 80
	// a batch:
	//   dns is gone
}
