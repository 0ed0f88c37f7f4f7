package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/control"
	"kubeproxy/registry"
)

// NodesWaited is what "kube-proxy wait -nodes" has found.
type NodesWaited struct {
	Endpoint string       `json:"endpoint"`
	Revision int64        `json:"revision,omitempty"` // that each node has to have in force
	Left     int          `json:"left"`               // how many nodes have not let go of the endpoint
	Nodes    []NodeWaited `json:"nodes"`
}

// NodeWaited is what one node has said last.
type NodeWaited struct {
	Address string `json:"address"`
	control.Endpoint
	Error string `json:"error,omitempty"` // why it cannot be asked, or does not know
	Done  bool   `json:"done"`            // it has the revision in force, and no client of the endpoint
}

// Bounds of asking nodes.
const (
	nodesLook    = time.Second // between two rounds
	nodeTimeout  = 5 * time.Second
	nodesAtOnce  = 1000
	maxNodeReply = 64 << 10
	metricsPort  = "10249" // of -metrics_bind_address
)

// askNodes asks all nodes, round after round, until all have let go of the endpoint in two rounds in a row: between those, a client that was just being
// given it is counted. When ctx ends, the round under way is the last, or the one after it if all were well in this one; both have 10 s at most.
func askNodes(ctx context.Context, addresses []string, endpoint string, revision int64) NodesWaited {
	found := NodesWaited{Endpoint: commandline.OneLine(endpoint), Revision: revision, Nodes: make([]NodeWaited, len(addresses))}
	client := &http.Client{
		Timeout:       nodeTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true}, // and no proxy of the environment: nodes are asked themselves
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(2*nodeTimeout, cancel) })()
	over, last := ctx.Done(), false
	for well := 0; ; {
		room := make(chan struct{}, nodesAtOnce)
		var asked sync.WaitGroup
		for i, address := range addresses {
			room <- struct{}{}
			asked.Go(func() {
				found.Nodes[i] = askNode(asking, client, address, endpoint, revision)
				<-room
			})
		}
		asked.Wait()
		found.Left = 0
		for _, n := range found.Nodes {
			if !n.Done {
				found.Left++
			}
		}
		if well++; found.Left > 0 {
			well = 0
		}
		if well == 2 || last {
			return found
		}
		select {
		case <-time.After(nodesLook):
		case <-over:
			if well == 0 {
				return found
			}
			over, last = nil, true
			time.Sleep(nodesLook)
		}
	}
}

func askNode(ctx context.Context, client *http.Client, address, endpoint string, revision int64) NodeWaited {
	n := NodeWaited{Address: commandline.OneLine(address)}
	if err := n.ask(ctx, client, address, endpoint); err != nil {
		n.Error = commandline.OneLine(err.Error())
	}
	n.Done = n.Error == "" && n.Clients == 0 && !n.Pending && n.Revision >= revision
	return n
}

func (n *NodeWaited) ask(ctx context.Context, client *http.Client, address, endpoint string) error {
	target := url.URL{Scheme: "http", Host: address, Path: control.EndpointPath, RawQuery: url.Values{"endpoint": {endpoint}}.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	response, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return err
	}
	defer response.Body.Close()
	body := json.NewDecoder(io.LimitReader(response.Body, maxNodeReply))
	if response.StatusCode != http.StatusOK {
		var failed control.Error
		if body.Decode(&failed); failed.Error != "" {
			return errors.New(failed.Error)
		}
		if response.StatusCode == http.StatusNotFound {
			return errors.New("it has no such page: its kube-proxy is older than this command")
		}
		return fmt.Errorf("the node answers %s", response.Status)
	}
	if err := body.Decode(&n.Endpoint); err != nil {
		return err
	}
	if n.Endpoint.Endpoint != registry.Label(endpoint) {
		return errors.New("who answers there is no node: the answer is about another endpoint, or about none")
	}
	return nil
}

// printNodes names each node that has not let go of the endpoint, and why.
func printNodes(w io.Writer, found NodesWaited, after time.Duration) {
	at := ""
	if found.Revision > 0 {
		at = fmt.Sprintf(", and revision %d is in force", found.Revision)
	}
	if found.Left == 0 {
		fmt.Fprintf(w, "%s has no client on any of %s%s\n", found.Endpoint, count(int64(len(found.Nodes)), "node"), at)
		return
	}
	fmt.Fprintf(w, "%s of %d still have %s after %v:\n", count(int64(found.Left), "node"), len(found.Nodes), found.Endpoint, after)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, n := range found.Nodes {
		if !n.Done {
			fmt.Fprintf(table, "%s\t%s\n", n.Address, n.why(found.Revision))
		}
	}
	table.Flush()
}

func (n *NodeWaited) why(revision int64) string {
	switch {
	case n.Error != "":
		return "cannot be asked: " + n.Error
	case n.Revision < revision:
		return fmt.Sprintf("revision %d; %s", n.Revision, clients(n.Clients))
	case n.Pending:
		return fmt.Sprintf("revision %d is not in force yet; %s", n.Revision, clients(n.Clients))
	}
	return clients(n.Clients)
}

// nodeAddresses reads the addresses of nodes, each HOST:PORT, or HOST for the default port of -metrics_bind_address.
func nodeAddresses(texts []string) (addresses []string, err error) {
	seen := make(map[string]bool)
	for _, text := range texts {
		host, port, err := net.SplitHostPort(text)
		if err != nil {
			host, port = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), metricsPort
		}
		_, notIP := netip.ParseAddr(host)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || notIP != nil && strings.ContainsAny(host, "/[]@:") {
			return nil, fmt.Errorf("invalid node %s: HOST:PORT of its -metrics_bind_address, or HOST for port %s", commandline.OneLine(text), metricsPort)
		}
		if address := net.JoinHostPort(host, port); !seen[address] {
			seen[address] = true
			addresses = append(addresses, address)
		}
	}
	return addresses, nil
}
