// A kube-proxy to begin with: it reads its options and its records, and prints them when they change. Opening ports is yours.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"
)

func main() {
	dir := flag.String("registry_dir", "", "directory of the records")
	bind := flag.String("bind_address", "127.0.0.1", "address of all ports")
	flag.Parse()
	var before map[string]string
	for {
		now := make(map[string]string) // by path, such as specs/web
		paths, _ := filepath.Glob(filepath.Join(*dir, "registry/services/*/*"))
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil {
				now[filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path)] = string(text)
			}
		}
		if !reflect.DeepEqual(now, before) {
			fmt.Println(*bind, now)
			before = now // here: decode the records, open the ports of new services, and close those of old ones
		}
		time.Sleep(100 * time.Millisecond)
	}
}
