package peer

import (
	"fmt"
	"strconv"
	"strings"

	"kubeproxy/scripts/school/store"
)

// The commands that repeat a step by hand. They need python3 and nothing else, because versions of nc differ in how they half-close.

// Python is a command that runs a program in Python, with its sockets.
func Python(format string, args ...any) string {
	return "python3 -c " + store.Quoted("import socket; "+fmt.Sprintf(format, args...))
}

// AskByHand is a client that waits for what the endpoint says first.
func AskByHand(port int) string {
	return Python(`c = socket.create_connection(("127.0.0.1", %d), 10); print(c.recv(99))`, port)
}

// TalkByHand is a client that says something and waits for the echo.
func TalkByHand(port int) string {
	return Python(`c = socket.create_connection(("127.0.0.1", %d), 10); print(c.recv(99)); c.sendall(b"hello"); print(c.recv(99))`, port)
}

// CrowdByHand is clients that stay.
func CrowdByHand(port, n int) string {
	return Python(`c = [socket.create_connection(("127.0.0.1", %d), 10) for _ in range(%d)]; input("connected; Enter ends ")`, port, n)
}

// FinishByHand is a client that half-closes, and then reads to the end.
func FinishByHand(port, n int) string {
	return Python(`c = socket.create_connection(("127.0.0.1", %d), 10); c.sendall(bytes(%d)); c.shutdown(socket.SHUT_WR); print(c.makefile().read())`, port, n)
}

// GoOnByHand is a client that reads to the end, and then goes on sending.
func GoOnByHand(port int) string {
	return Python(`c = socket.create_connection(("127.0.0.1", %d), 10); print(c.makefile().read()); `+
		`[c.sendall(bytes(10000)) for _ in range(10)]; c.shutdown(socket.SHUT_WR)`, port)
}

// DatagramByHand is a client over UDP.
func DatagramByHand(port, n int) string {
	return Python(`c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.settimeout(5); c.connect(("127.0.0.1", %d)); `+
		`c.send(b"x" * %d); a = c.recv(65535); print(a[:40], len(a))`, port, n)
}

// DrainByHand is a program with one client, which gets SIGTERM while the client is there.
func DrainByHand(port int, args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = strconv.Quote(arg)
	}
	return Python(`import subprocess, time; p = subprocess.Popen([%s]); time.sleep(2); c = socket.create_connection(("127.0.0.1", %d), 10); print(c.recv(99)); `+
		`p.terminate(); time.sleep(1); c.sendall(b"hello"); print(c.recv(99)); c.close(); print("exit status", p.wait(30))`, strings.Join(quoted, ", "), port)
}
