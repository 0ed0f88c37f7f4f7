# Two ways to the lab's image, which holds etcd, etcdctl, kube-proxy and labtool, and nothing else.
#
# ./lab up takes the first stage, out of what it has built in bin/lab, and pulls nothing. Without Go,
# but with an image registry:
#
#     docker build -t kubeproxy-lab . && docker compose -p kubeproxy-lab up -d

FROM scratch AS prebuilt
COPY bin/lab/etcd bin/lab/etcdctl bin/lab/kube-proxy bin/lab/labtool /bin/

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /out/etcd go.etcd.io/etcd/server/v3 \
 && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /out/ go.etcd.io/etcd/etcdctl/v3 ./cmd/kube-proxy ./scripts/labtool

FROM scratch
COPY --from=build /out/ /bin/
CMD ["/bin/kube-proxy", "-help"]
