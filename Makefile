# What everybody runs; `make` lists it. Tools come from go.mod's tool block: nothing to install.
# Without cgo etcd is compiled once; the race detector needs cgo, and so a C compiler.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
TREE    := $(shell test -z "$$(git status --porcelain 2>/dev/null)" && echo clean || echo dirty)
STAMP   := -X main.gitVersion=$(VERSION) -X main.gitCommit=$(COMMIT) -X main.gitTreeState=$(TREE)
# A tag may have any name, such as v1$(id). Recipes read these from their environment, in quotes: so no shell takes them for more than text.
export VERSION STAMP

# FUZZTIME: for each fuzz target. BENCH, BENCHTIME, COUNT: which benchmarks, how long or how many
# iterations, how many times (benchstat wants at least 6). BENCHFLAGS: others of go test, such as -short. PKG: which packages.
# PARALLEL: how many tests of a package make test runs at a time. TESTFLAGS: others of its go test.
FUZZTIME  ?= 10s
BENCH     ?= .
BENCHTIME ?= 1s
COUNT     ?= 6
PKG       ?= ./...
PARALLEL  ?= 6
TESTFLAGS ?=

# UNRACED: the packages whose tests make test runs without the race detector, under which they need up to seven times as much processor time. It seldom
# tells anything of most of them: they share no memory, or run programs. Of the engines, the ring's suite has it, and that one has epoll's loops.
# SUITED are the other two: their own tests have it, and their suites only in make race, which runs everything with it.
UNRACED    = ./cmd/playground ./cmd/internal/hostile ./docs/... ./registry/... ./scripts/... $(SUITED)
SUITED     = ./proxy/portable ./proxy/epoll
RACED      = $(filter-out $(shell go list $(UNRACED)),$(shell go list ./...))

# LONGEST: the packages whose tests wait most. They come first, or all others would be over before them.
LONGEST    = ./cmd/kube-proxy ./config/etcdsource

# BENCHED: the packages that have benchmarks.
BENCHED    = $(addprefix ./,$(sort $(dir $(shell git grep -l --untracked '^func Benchmark' -- '*_test.go'))))

# NIGHTLY: the runs of make that make nightly consists of. One that fails keeps no other from running.
define NIGHTLY
race
platforms
browser
monitoring-check
dist
fuzz FUZZTIME=1m
models
bench COUNT=1
kernel-suite
kernel-handovers
school-check
patroni-check
hostile
torture ENGINE=portable DURATION=10m
torture ENGINE=epoll DURATION=10m
torture ENGINE=ring DURATION=10m
torture-mutations
chaos MEMBERS=3
endef
export NIGHTLY

# ARGS: of monitoring-check (-short), of hostile (-engine=epoll, -run=Records), of bench-peers and bench-self, such as '-all' or '-rounds=30 -only=idle'
# (bin/measure peers -h), of
# bench-fleet, such as '-nodes=20 -steps=change' (bin/measure fleet -h), of bench-scale, such as '-quick' (bin/measure scale -h), of bench-kernel (bin/measure kernel -h),
# of bench-takeover (bin/measure takeover -h), of bench-patroni (bin/measure patroni -h), and of systemd (bin/debiancheck systemd -h). SELF: what bench-self
# compares, NAME=FLAGS;NAME=FLAGS: by default kube-proxy with itself, which has to come out as 1. OLD: an earlier kube-proxy, which
# bench-self then compares with the one in this tree, in every default row.
ARGS ?=
OLD  ?=
SELF ?= one=;other=

# CHAOS: flags of the chaos run as they are, or one by one; CHAOS=-h explains them.
CHAOS     ?= $(if $(MEMBERS),-members=$(MEMBERS)) $(if $(DURATION),-duration=$(DURATION)) $(if $(SEED),-seed=$(SEED)) \
             $(if $(ONLY),-only=$(ONLY)) $(if $(BREAKAGE),-breakage=$(BREAKAGE)) $(if $(SOAK),-soak=$(SOAK))

# PLATFORMS: what make platforms compiles, GOOS/GOARCH. Systems other than Linux have the portable engine only. js/wasm has no kube-proxy: there it
# is the packages registry, config and proxy. SCHOOLS: those that the school is compiled for, with an etcd.
SCHOOLS   ?= linux/amd64 darwin/arm64
PLATFORMS ?= linux/amd64 linux/arm64 linux/386 linux/arm linux/riscv64 darwin/arm64 freebsd/amd64 windows/amd64 js/wasm

# WHEN: every time in what make dist builds. OUT, ARCHES: where to and for what.
WHEN   ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
OUT    ?= bin/dist
ARCHES ?= amd64,arm64

# With cgo, or with -trimpath, the go command compiles each package once more. So all but the race detector's tests, the book's page and releases go
# without, and find in the cache what others have compiled.
export CGO_ENABLED = 0

.PHONY: school school-check help build platforms run test race check nightly models browser fuzz hostile bench bench-peers bench-self bench-fleet bench-scale bench-kernel kernel-handovers kernel-suite bench-takeover bench-patroni patroni-check dist dist-check release licenses vulnerabilities seccomp-check systemd chaos chaos-v2 torture torture-mutations lab lab-check lab-down monitoring-check book page clean
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/kube-proxy and bin/playground
	go build -ldflags "$$STAMP" -o bin/ ./cmd/...

platforms: ## compile kube-proxy for each of PLATFORMS: those that are supported
	@for p in $(PLATFORMS); do echo "$$p"; export GOOS=$${p%/*} GOARCH=$${p#*/}; \
	case $$p in js/*) go build -trimpath ./registry/... ./config ./proxy ./proxy/portable ./scripts/page;; *) go build -o /dev/null ./cmd/kube-proxy;; esac || exit 1; done
	@for p in $(SCHOOLS); do echo "$$p, the school"; GOOS=$${p%/*} GOARCH=$${p#*/} go build -o /dev/null ./scripts/school || exit 1; done

run: ## the classroom: etcd, a few backends and the proxy in one process
	go build -o bin/ ./cmd/playground && exec bin/playground

# Without GORACE each process under the race detector sleeps for a second at its end.
# Tests mostly wait: for sockets, for timers, and for processes that they start. So more of them, and of packages, run at a time than there
# are processors.
GOTEST     = GORACE=atexit_sleep_ms=0 go test -timeout 20m -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -parallel $(PARALLEL) $(TESTFLAGS)

test: ## every test, most with the race detector (UNRACED: which are without); PKG=./config/...: those of some packages, with it
	go mod download # some tests build etcd in a network namespace, which has no network
ifeq ($(PKG),./...)
	CGO_ENABLED=1 $(GOTEST) -race $(LONGEST) $(RACED)
	CGO_ENABLED=1 $(GOTEST) -race -skip '^TestConformance$$' $(SUITED)
	$(GOTEST) ./scripts/school $(UNRACED)
else
	CGO_ENABLED=1 $(GOTEST) -race $(PKG)
endif

race: ## every test with the race detector
	go mod download
	CGO_ENABLED=1 $(GOTEST) -race $(LONGEST) ./...

check: ## what must be clean before a commit: gofmt, vet, staticcheck, test
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	$(MAKE) test TESTFLAGS=-vet=off

nightly: ## what takes long and seldom finds anything, in two hours: NIGHTLY; the gate has a short form of each. Root, and what those targets need
	@printf '%s\n' "$$NIGHTLY" | { failed=; while read -r run; do echo "=== make $$run"; $(MAKE) $$run </dev/null || failed="$$failed; $$run"; done; \
	test -z "$$failed" || { echo "FAILED: $${failed#; }"; exit 1; }; }

models: ## the random histories of make test, longer; ten minutes
	CGO_ENABLED=1 go test -race -count=1 -timeout 30m ./config/etcdsource -run AfterEveryUpdate -model.steps=20000
	CGO_ENABLED=1 go test -race -count=1 ./config/etcdsource -run CatchesEachBreakage -breakage.runs=5
	CGO_ENABLED=1 go test -race -count=1 ./config/apisource -run EachObjectIsAsItWas -model.steps=10000
	CGO_ENABLED=1 go test -race -count=1 ./config/etcdv2source -run AfterEveryUpdate -model.for=1m
	CGO_ENABLED=1 go test -race -count=1 ./config/statefile -run AKilledWriter -kills=500
	CGO_ENABLED=1 go test -race -count=1 -timeout 20m ./cmd/kube-proxy -run ToAMemberThatTheKeysForbid -patroni.steps=1000

browser: page book ## the status page of a node, the page of docs/page.md and the book, in Chromium (package chromium-headless-shell or chromium); pictures in bin/status-*.png, bin/page-*.png, bin/book-*.png
	go vet -tags browser ./internal/browsertest ./cmd/internal/statuspage ./scripts/page ./docs
	go test -tags browser -count=1 -run InABrowser -v ./cmd/internal/statuspage ./scripts/page ./docs

monitoring-check: build ## alert rules and metrics by promtool, and each alert under its fault with a real Prometheus (Debian's package, 19 MB; ARGS=-short: promtool alone)
	scripts/monitoring-check $(ARGS)

book: ## all documents as a site with a search in bin/book, which needs no network; a dead link is an error
	cd scripts/book && go vet . && go test -count=1 . && go run . ../.. ../../bin/book

fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

page: ## the page of docs/page.md, one file without a server: bin/page.html
	GOOS=js GOARCH=wasm go vet ./scripts/page
	cd scripts/book && go run . page ../.. ../../bin/page.html

hostile: build ## what strangers and bad records can do to bin/kube-proxy, with a table; fifteen minutes, Linux (ARGS='-args -h')
	go mod download # etcd is built in a network namespace, which has no network
	go test -v -count=1 -timeout 60m ./cmd/internal/hostile -full -binary="$$PWD/bin/kube-proxy" $(ARGS)

bench: ## benchmarks; compare two outputs with: go tool benchstat old new
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -count $(COUNT) $(BENCHFLAGS) $(if $(filter ./...,$(PKG)),$(BENCHED),$(PKG))

bench-peers: build ## kube-proxy beside HAProxy, nginx and no proxy: docs/performance.md; the installed ones, or HAPROXY=FILE and NGINX=FILE
	go build -o bin/ ./scripts/measure && HAPROXY='$(HAPROXY)' NGINX='$(NGINX)' bin/measure peers $(ARGS)

bench-self: build ## kube-proxy beside itself with other flags, SELF='off=FLAGS;on=FLAGS', or beside an earlier build, OLD=FILE
	go build -o bin/ ./scripts/measure && bin/measure self $(if $(OLD),-old='$(OLD)',-self='$(SELF)' -only=roundtrip-32,connect-reset,connect-fin,udp-32) $(ARGS)

bench-fleet: build ## fifty nodes and more with one etcd: docs/scale.md; fifteen minutes, Linux
	go build -o bin/ ./scripts/measure && bin/measure fleet $(ARGS)

bench-scale: build ## a change, a resync and a start at 10, 1,000 and 10,000 services; half an hour, Linux
	go build -o bin/ ./scripts/measure && bin/measure scale $(ARGS)

bench-kernel: build ## the kernel's way (-kernel=auto) beside one DNAT rule, routing and userspace; three minutes, Linux, nft (ARGS=-local, -services=4000, '-changes -services=10000')
	go build -o bin/ ./scripts/measure && bin/measure kernel $(ARGS)

kernel-handovers: ## 1,000 hand-overs of a port between kernel and userspace under 500 connections a second; a minute, Linux (HANDOVERS)
	go test -count=1 -v -run RefusedWhileAPortMoves ./proxy/conformancetest -kernel.handovers=$(or $(HANDOVERS),1000)

kernel-suite: ## the whole conformance suite through the kernel, minus named exceptions; a minute, Linux (a part of it runs in make test)
	go test -count=1 -v -parallel 6 -run 'TheSuiteHoldsThroughTheKernel|OnceChecksHaveFound' ./proxy/conformancetest -kernel.suite

bench-takeover: build ## twenty take-overs in a row under 4,000 connections, and HAProxy's reload: docs/performance.md; four minutes, Linux
	go build -o bin/ ./scripts/measure && bin/measure takeover $(ARGS)

patroni-check: build ## a real PostgreSQL cluster under Patroni through each event, three times: no commit by a primary that the key names no more; ten minutes, as bench-patroni
	go build -o bin/ ./scripts/measure && bin/measure patroni -rounds=3 -events=switchover,kill,freeze,cut,partition,etcd-away,replica-frozen,replica-behind -paths=members,members-ask,key-wait,replicas

bench-patroni: build ## clients of PostgreSQL when its primary changes, beside HAProxy: docs/patroni.md; five minutes an event, Linux, apt-get install patroni haproxy nftables (ARGS='-events=switchover,kill,freeze,cut,partition')
	go build -o bin/ ./scripts/measure && bin/measure patroni $(ARGS)

dist: ## packages in bin/dist: deb, rpm, tar.gz and OCI image for amd64 and arm64, the school for Linux and macOS, SPDX, checksums; the same bytes everywhere
	go -C scripts/dist run . -root="$$PWD" -out='$(abspath $(OUT))' -arch='$(ARCHES)' -version="$$VERSION" -commit='$(COMMIT)' -tree='$(TREE)' -time='$(WHEN)'

release: ## what dist builds, of a tag: with VEX, provenance and a signature, in bin/release; docs/releases.md (MINISIGN_KEY_FILE, ARCHES, OUT)
	go -C scripts/dist run . release -root="$$PWD" -out='$(abspath $(or $(filter-out bin/dist,$(OUT)),bin/release))' -arch='$(ARCHES)'

licenses: ## the license of each module that the programs are linked with; one that is not permitted is an error
	go -C scripts/dist run . licenses -root="$$PWD"

vulnerabilities: ## govulncheck, with the toolchain of go.mod; a finding that scripts/dist/vex.json does not explain is an error (GOVULNDB)
	go -C scripts/dist run . vulnerabilities -root="$$PWD"

dist-check: dist ## build them in another directory and compare; lint, install, upgrade, purge, run the image; root, and what make systemd needs
	scripts/dist-check -v="$$VERSION" -c='$(COMMIT)' -t='$(TREE)' -w='$(WHEN)'

seccomp-check: ## docs/kube-proxy-classic.seccomp.json in docker, with each engine, and without io_uring; a minute
	scripts/seccomp-check

systemd: build ## the unit of docs in a Debian that systemd boots, in a container; root, systemd-nspawn and debootstrap (ARGS=-suite=trixie)
	go build -o bin/ ./scripts/debiancheck && bin/debiancheck systemd $(ARGS)

chaos: ## ten minutes in which everything happens to etcd (MEMBERS, DURATION, SEED, ONLY, BREAKAGE, SOAK; CHAOS=-h)
	go build -o bin/ ./scripts/chaos && exec bin/chaos $(CHAOS)

chaos-v2: ## ten minutes in which everything happens to an etcd with a v2 API (DURATION, ETCD=/usr/bin/etcd of version 3.4)
	CGO_ENABLED=1 go test -race -count=1 -v -timeout 2h -run AfterEveryUpdateOfEtcd2 ./config/etcdv2source -model.for=$(or $(DURATION),10m) -model.etcd=$(or $(ETCD),$(shell command -v etcd || echo etcd))

torture: build ## every way that connections and datagrams can go and end, through bin/kube-proxy, compared with what it promises; Linux (ENGINE, DURATION, SEED, ARGS='-takeovers=all', ARGS=-kernel; ARGS=-h)
	go build -o bin/ ./scripts/torture && exec bin/torture $(if $(ENGINE),-engine=$(ENGINE)) $(if $(DURATION),-duration=$(DURATION)) $(if $(SEED),-seed=$(SEED)) $(ARGS)

torture-mutations: ## five broken builds of kube-proxy, of which make torture has to find each within a minute; Linux
	go run ./scripts/torture/mutations $(ARGS)

school: ## build bin/school, which judges a kube-proxy that somebody builds in any language, and the etcd of its last stages: docs/school
	go build -o bin/ ./scripts/school && cp "$$(go tool -n go.etcd.io/etcd/server/v3)" bin/school-etcd

school-check: ## the school's judges against naive programs in all languages, and kube-proxy with each engine; needs python3, node and socat
	go test -count=1 -v -run 'Naive|Reference|Engine|OverEtcd' ./scripts/school -school.whole

lab: ## the lab: etcd, two nodes, three backends and a client, in containers
	./lab up

lab-check: ## run every drill of docs/lab in the lab, and compare
	./lab check

lab-down: ## stop the lab; nothing stays behind
	./lab down

clean: ## remove what was built
	rm -rf bin bench
