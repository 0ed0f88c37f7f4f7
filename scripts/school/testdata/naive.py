#!/usr/bin/env python3
"""What many people write first: threads, no errors, and records that only ever appear."""
import json, os, socket, sys, threading, time

options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word)
root, bind = options["registry_dir"] + "/registry/services/", options["bind_address"]
endpoints, turns, ports = {}, {}, {}


def read(kind):
    for name in sorted(os.listdir(root + kind)):
        with open(root + kind + "/" + name) as file:
            yield name, json.load(file)


def pump(source, destination):
    try:
        while data := source.recv(65536):
            destination.sendall(data)
    except OSError:
        pass
    for conn in source, destination:
        try:
            conn.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(client, name):
    addresses = list(dict.fromkeys(endpoints[name]))
    turns[name] = turns.get(name, -1) + 1
    host, port = addresses[turns[name] % len(addresses)].rsplit(":", 1)
    endpoint = socket.create_connection((host, int(port)))
    threading.Thread(target=pump, args=(client, endpoint), daemon=True).start()
    pump(endpoint, client)


def listen(name, port):
    listener = socket.create_server((bind, port), backlog=128)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, name), daemon=True).start()


while True:
    for name, record in read("endpoints"):
        endpoints[name] = record["endpoints"]
    for name, record in read("specs"):
        if name not in ports:
            ports[name] = record["port"]
            threading.Thread(target=listen, args=(name, record["port"]), daemon=True).start()
    time.sleep(0.2)
