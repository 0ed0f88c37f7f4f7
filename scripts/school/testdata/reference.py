#!/usr/bin/env python3
"""A kube-proxy that passes all stages: one event loop, no library but Python's. Tests break it in one way for each stage."""
import asyncio, base64, json, os, signal, socket, struct, sys, threading, time, urllib.request

options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word)
ROOT, BIND = options.get("registry_dir", "") + "/registry/services/", options["bind_address"]

good = {"specs": {}, "endpoints": {}}  # the last good version of each record, by name
read = {}       # (kind, name): the version of the file that was read last
claims = {}     # (port, protocol): the services that want it; the first one has it
listeners = {}  # (port, protocol): what is open
turns = {}      # service: the place in its list of the endpoint that came last, and its address
relays = set()  # the tasks of TCP clients


def decode(kind, text):
    record = json.loads(text)
    if kind == "specs":
        port = record["port"]
        if type(port) is not int or not 0 < port < 65536:
            raise ValueError(f"port {port!r}")
        return port, record.get("protocol", "TCP").upper()
    addresses = record["endpoints"]
    if not isinstance(addresses, list):
        raise ValueError("endpoints are no list")
    return list(dict.fromkeys(addresses))  # each once


def scan():
    """Reads the files that have changed. A record that cannot be read leaves its last good version in force."""
    for kind, records in good.items():
        names = set(os.listdir(ROOT + kind))
        for gone in set(records) - names:
            del records[gone]
        for gone in [key for key in read if key[0] == kind and key[1] not in names]:
            del read[gone]
        for name in names:
            path = ROOT + kind + "/" + name
            try:
                stat = os.stat(path)
                version = stat.st_mtime_ns, stat.st_ino
                if read.get((kind, name)) == version:
                    continue
                read[kind, name] = version
                with open(path, "rb") as file:
                    records[name] = decode(kind, file.read())
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                print("bad record", kind, name, repr(error), file=sys.stderr, flush=True)


def etcd(path, body, timeout):
    """Asks etcd's JSON gateway. Keys and values are base64."""
    return urllib.request.urlopen(urllib.request.Request(options["etcd_servers"] + path, json.dumps(body).encode()), timeout=timeout)


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def follow(loop):
    """Lists, and watches from the next revision. After any end, and after ten seconds of silence, it lists again. It runs in a thread."""
    span = {"key": encoded(ROOT), "range_end": encoded(ROOT[:-1] + "0")}
    while True:
        try:
            listed = json.load(etcd("/v3/kv/range", span, 10))
            loop.call_soon_threadsafe(replace, listed.get("kvs", []))
            after = int(listed["header"]["revision"]) + 1
            for line in etcd("/v3/watch", {"create_request": {**span, "start_revision": after}}, 10):
                result = json.loads(line)["result"]
                if result.get("canceled"):
                    break
                loop.call_soon_threadsafe(apply, result.get("events", []))
        except (OSError, ValueError, KeyError) as error:
            print("etcd:", error, file=sys.stderr, flush=True)
            time.sleep(0.2)


def replace(pairs):
    """Makes a full list the state: what it does not have is gone."""
    names = {base64.b64decode(pair["key"]).decode("utf8", "replace") for pair in pairs}
    for kind, records in good.items():
        for gone in [name for name in records if ROOT + kind + "/" + name not in names]:
            del records[gone]
    apply([{"kv": pair} for pair in pairs])


def apply(events):
    """Applies all that was written in one step, and then settles the ports."""
    for event in events:
        kind, _, name = base64.b64decode(event["kv"]["key"]).decode("utf8", "replace")[len(ROOT):].partition("/")
        if kind not in good:
            continue
        if event.get("type") == "DELETE":
            good[kind].pop(name, None)
            continue
        try:
            good[kind][name] = decode(kind, base64.b64decode(event["kv"].get("value", "")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            print("bad record", kind, name, repr(error), file=sys.stderr, flush=True)
    settle()


def settle():
    """Opens and closes ports, so that each belongs to the service that has wanted it longest."""
    wanted = {}
    for name, port in good["specs"].items():
        wanted.setdefault(port, []).append(name)
    for port in set(claims) | set(wanted):
        queue = [name for name in claims.get(port, []) if name in wanted.get(port, [])]
        queue += sorted(set(wanted.get(port, [])) - set(queue))
        claims[port] = queue
        if queue and port not in listeners:
            try:
                listeners[port] = (Tcp if port[1] == "TCP" else Udp)(port)
            except OSError as error:
                print("cannot open", port, error, file=sys.stderr, flush=True)
        if not queue:
            del claims[port]
            if port in listeners:
                listeners.pop(port).close()


def endpoints(port):
    """Returns the endpoints of the service that has a port, without those that are this program itself."""
    addresses = good["endpoints"].get(claims[port][0], []) if port in claims else []
    return [address for address in addresses if not is_own(address, port[1])]


def is_own(address, protocol):
    try:
        host, port = split(address)
    except ValueError:
        return True  # no address at all
    return (port, protocol) in claims and host in (BIND, "127.0.0.1", "::1")


def choose(port):
    """Returns the endpoints for one client: the next one in turn first, then the others."""
    addresses = endpoints(port)
    if not addresses:
        return []
    service = claims[port][0]
    place, last = turns.get(service, (0, None))
    if last in addresses:
        place = addresses.index(last) + 1  # the list may have changed: go on after the one that came last
    place %= len(addresses)
    turns[service] = place, addresses[place]
    return addresses[place:] + addresses[:place]


def split(address):
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def bound(kind, port):
    """Returns a socket at the bind address. 0.0.0.0 means all addresses of both families."""
    if BIND == "0.0.0.0" and socket.has_dualstack_ipv6():
        conn = socket.socket(socket.AF_INET6, kind)
        conn.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        host = "::"
    else:
        conn, host = socket.socket(family(BIND), kind), BIND
    conn.setblocking(False)
    if kind == socket.SOCK_STREAM:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    conn.bind((host, port))
    return conn


async def connect(address):
    endpoint = socket.socket(family(split(address)[0]))
    endpoint.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(endpoint, split(address))
    except BaseException:
        endpoint.close()
        raise
    return endpoint


async def search(addresses):
    """Connects to the first address that answers. Beside a silent one the next attempt begins after 250 ms."""
    left, attempts = list(addresses), set()
    try:
        while left or attempts:
            if left:
                attempts.add(asyncio.create_task(asyncio.wait_for(connect(left.pop(0)), 2)))
            done, _ = await asyncio.wait(attempts, timeout=0.25 if left else None, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                attempts.discard(attempt)
                if not attempt.exception():
                    return attempt.result()
        return None
    finally:
        for attempt in attempts:
            attempt.cancel()


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


async def pump(source, destination):
    """Carries one direction: it reads only what the other side takes, and passes on the end."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, 65536):
        await loop.sock_sendall(destination, data)
    destination.shutdown(socket.SHUT_WR)


class Tcp:
    def __init__(self, port):
        self.port = port
        self.listener = bound(socket.SOCK_STREAM, port[0])
        self.listener.listen(512)
        self.accepting = asyncio.create_task(self.accept())

    async def accept(self):
        pause = 0.005
        while True:
            try:
                client, _ = await asyncio.get_running_loop().sock_accept(self.listener)
            except OSError:  # no descriptors, most often
                await asyncio.sleep(pause)
                pause = min(1, 2 * pause)
                continue
            pause = 0.005
            client.setblocking(False)
            relay = asyncio.create_task(self.relay(client))
            relays.add(relay)
            relay.add_done_callback(relays.discard)

    async def relay(self, client):
        try:
            endpoint = await search(choose(self.port))
        except OSError:
            endpoint = None
        if endpoint is None:
            reset(client)
            return
        directions = [asyncio.create_task(pump(client, endpoint)), asyncio.create_task(pump(endpoint, client))]
        try:
            await asyncio.gather(*directions)
            client.close()
            endpoint.close()
        except OSError:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)  # the loop forgets both descriptors before others get their numbers
            reset(client)
            reset(endpoint)

    def close(self):
        self.accepting.cancel()
        asyncio.get_running_loop().remove_reader(self.listener)  # now, and not after another socket has got its number
        self.listener.close()


class Udp:
    def __init__(self, port):
        # A client is an address, and the address that it has sent to. It has: [socket to its endpoint, address of the endpoint, time of the last datagram].
        self.port, self.sessions = port, {}
        self.socket = bound(socket.SOCK_DGRAM, port[0])
        if self.socket.family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        elif sys.platform == "linux":
            self.socket.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
        asyncio.get_running_loop().add_reader(self.socket, self.receive)

    def receive(self):
        loop = asyncio.get_running_loop()
        try:
            data, local, _, client = self.socket.recvmsg(65536, 256)  # local says which address the client has sent to
            client = client, tuple(local)
            session = self.sessions.get(client)
            if session and session[1] not in endpoints(self.port):
                self.end(client)
                session = None
            if not session:
                addresses = choose(self.port)
                if not addresses:
                    return
                endpoint = socket.socket(family(split(addresses[0])[0]), socket.SOCK_DGRAM)
                endpoint.setblocking(False)
                endpoint.connect(split(addresses[0]))
                loop.add_reader(endpoint, self.answer, endpoint, client)
                session = self.sessions[client] = [endpoint, addresses[0], 0]
            session[2] = loop.time()
            session[0].send(data)
        except OSError as error:  # the endpoint refused an earlier datagram
            print("datagram:", error, file=sys.stderr, flush=True)

    def answer(self, endpoint, client):
        try:
            self.socket.sendmsg([endpoint.recv(65536)], client[1], 0, client[0])  # from that address
        except OSError:
            self.end(client)

    def end(self, client):
        endpoint = self.sessions.pop(client)[0]
        asyncio.get_running_loop().remove_reader(endpoint)
        endpoint.close()

    def end_idle(self):
        now = asyncio.get_running_loop().time()
        for client in [client for client, session in self.sessions.items() if now - session[2] > 60]:
            self.end(client)

    def close(self):
        for client in list(self.sessions):
            self.end(client)
        asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.close()


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if "etcd_servers" in options:
        threading.Thread(target=follow, args=(asyncio.get_running_loop(),), daemon=True).start()
    while not stop.is_set():
        try:
            if "registry_dir" in options:
                scan()
        except OSError as error:  # no descriptors: what was read stays in force
            print("cannot scan:", error, file=sys.stderr, flush=True)
        settle()
        for listener in listeners.values():
            if isinstance(listener, Udp):
                listener.end_idle()
        try:
            await asyncio.wait_for(stop.wait(), 0.1)
        except asyncio.TimeoutError:
            pass
    for listener in listeners.values():
        listener.close()
    if relays:
        await asyncio.wait(relays, timeout=60)


asyncio.run(main())
