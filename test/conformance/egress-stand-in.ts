import { egressDnsPort, egressPort } from '../../src/runtime/network/index.ts'
import { type Namespace, type NetworkWorld, Talk } from './network-world.ts'

/** Stands for the process that holds egress rules: says of each connection where it was going, and of each question that it came. */
export function startStandIn(world: NetworkWorld): Promise<Talk> {
  const { gatewayAddress } = world.subnet
  const program = `
import socket, struct, sys, threading
def taking(server, serve):
    while True: threading.Thread(target=serve, args=server.accept(), daemon=True).start()
def connection(c, peer):
    port, address = struct.unpack("!2xH4s8x", c.getsockopt(socket.SOL_IP, 80, 16))  # SO_ORIGINAL_DST
    try:
        with c:
            c.sendall(f"taken {peer[0]} to {socket.inet_ntoa(address)}:{port}\\n".encode())
            while data := c.recv(65536): c.sendall(data)
    except OSError: pass
def question(c, _):
    with c: c.sendall(b"name\\n")
def questions(s):
    while True:
        _, peer = s.recvfrom(512)
        s.sendto(b"name\\n", peer)
address = "${gatewayAddress}"
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((address, ${egressDnsPort}))
servers = [socket.create_server((address, port), backlog=4096) for port in (${egressPort}, ${egressDnsPort})]
for work in ((taking, servers[0], connection), (taking, servers[1], question), (questions, u)):
    threading.Thread(target=work[0], args=work[1:], daemon=True).start()
print("serves")
sys.stdin.read()`
  return Talk.start('python3', '-uc', program)
}

/** For programs in sandboxes: `tcp`, `udp` and `icmp` say in a word or a line what has come back; `waits` are seconds until it is silence. */
export const attempts = `
import errno, os, socket, sys
waits = 5
words = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EHOSTUNREACH: "prohibited", errno.EACCES: "prohibited"}
def said(work):
    try: return work()
    except TimeoutError: return "silence"
    except OSError as error: return words.get(error.errno, str(error))
def tcp(address, port):
    def work():
        with socket.create_connection((address, port), waits) as c:
            c.sendall(b"x\\n")
            return c.makefile().readline().strip() or "ended"
    return said(work)
def udp(address, port, s=None):
    def work():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(waits)
            s.connect((address, port))
            s.send(b"x")
            return s.recv(64).decode("latin1").strip()
    return said(work)
def icmp(address):
    def work():
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:
            s.settimeout(waits)
            s.sendto(bytes.fromhex("0800f7ff00000000"), (address, 0))
            while True:
                kind = s.recv(256)[20:22]
                if kind[0] == 0: return "answer"
                if kind == b"\\x03\\x0d": return "prohibited"
    return said(work)
`

/** What came back of one attempt, such as `tcp("192.0.2.1", 80)`. */
export function attempt(from: Namespace, call: string): Promise<string> {
  return from.python(`${attempts}\nprint(${call})`)
}

/** Answers over TCP with a line of its own, and over UDP, and counts in both. */
export function outsideServer(address: string, ports: readonly number[]): string {
  return `
import socket, sys, threading
come = 0
def tcp(server):
    global come
    while True:
        c, _ = server.accept()
        come += 1
        threading.Thread(target=serve, args=(c,), daemon=True).start()
def serve(c):
    try:
        for _ in c.makefile(): c.sendall(b"outside\\n")
    except OSError: pass
def udp(s):
    global come
    while True:
        _, peer = s.recvfrom(512)
        come += 1
        s.sendto(b"outside\\n", peer)
for port in ${JSON.stringify(ports)}:
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("${address}", port))
    threading.Thread(target=udp, args=(u,), daemon=True).start()
    server = socket.create_server(("${address}", port), backlog=4096)
    threading.Thread(target=tcp, args=(server,), daemon=True).start()
print("serves")
for _ in sys.stdin: print(come)`
}
