"""Moves data from a seeder to a sink through tunnels of py-ipv8 with ipv8-rust-tunnels, on loopback alone.

Usage: tunnels.py HOPS CIRCUITS MEGABYTES REPETITIONS SEED, HOPS as in 1,2,3 and CIRCUITS as in 1,4. Prints one JSON object for each measurement, a line each.

The nodes (client, relays, exit) are processes of their own, this script with the argument "node"; this process is seeder
and sink, which speaks SOCKS 5 with UDP to the client's node. Tunnels carry UDP, so sink and seeder keep a window of
datagrams on their way and nothing is lost to full buffers. The datagrams look like uTP: exits pass nothing else.
"""

import asyncio
import json
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time

PAYLOAD = 1300  # bytes of a datagram, so that with all headers it fits into 1500
WINDOW = 128  # datagrams on their way
ACK_EVERY = 16
STALL = 5.0  # seconds
START = 60.0


async def node():
    from ipv8.keyvault.crypto import default_eccrypto
    from ipv8.messaging.anonymization.community import TunnelCommunity, TunnelSettings
    from ipv8.messaging.anonymization.tunnel import PEER_FLAG_EXIT_BT, PEER_FLAG_RELAY
    from ipv8.messaging.interfaces.udp.endpoint import UDPv4Address
    from ipv8.peer import Peer
    from ipv8.peerdiscovery.network import Network
    from ipv8_rust_tunnels import Endpoint

    flags = {"relay": {PEER_FLAG_RELAY}, "exit": {PEER_FLAG_EXIT_BT}, "client": set()}[sys.argv[2]]
    endpoint = Endpoint(0, "127.0.0.1", worker_threads=1)
    await endpoint.open()
    endpoint.set_exit_address(("127.0.0.1", 0))
    address = UDPv4Address(*endpoint.get_address())
    endpoint.wan_address = endpoint.lan_address = address
    me = Peer(default_eccrypto.generate_key("curve25519"), address)
    settings = TunnelSettings(my_peer=me, endpoint=endpoint, network=Network())
    settings.min_circuits = settings.max_circuits = 0
    settings.max_traffic = 1 << 50
    settings.max_time_inactive = 600
    settings.remove_tunnel_delay = 0  # otherwise each circuit takes 5 s to go
    settings.peer_flags = flags
    overlay = TunnelCommunity(settings)
    overlay.my_estimated_wan = overlay.my_estimated_lan = address

    def say(**what):
        print(json.dumps(what), flush=True)

    say(address=list(address))
    loop = asyncio.get_running_loop()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            os._exit(0)
        order = json.loads(line)
        if order["do"] == "walk":
            overlay.walk_to(UDPv4Address(*order["to"]))
            say(ok=True)
        elif order["do"] == "known":
            say(known=len(overlay.candidates))
        elif order["do"] == "circuit":
            server = endpoint.create_socks5_server(0, order["hops"])
            leave = overlay.get_candidates(PEER_FLAG_EXIT_BT)
            last = leave[0] if leave else None
            made = [overlay.create_circuit(order["hops"], required_exit=last) for _ in range(order["circuits"])]
            ready = [bool(one) and bool(await asyncio.wait_for(one.ready, 30)) for one in made]
            say(ok=all(ready), port=server, paths=[len(one.hops) if one else 0 for one in made])
        elif order["do"] == "remove":
            for circuit in list(overlay.circuits):
                await overlay.remove_circuit(circuit, remove_now=True, destroy=True)
            say(ok=True)


class Node:
    def __init__(self, role):
        self.role = role
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "node", role],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.answer()["address"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the {self.role}'s process ended")
        return json.loads(line)

    def order(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def associate(port):
    """The control connection and the UDP port of a SOCKS 5 association."""
    control = socket.create_connection(("127.0.0.1", port), timeout=START)
    control.sendall(b"\x05\x01\x00")
    if control.recv(2) != b"\x05\x00":
        raise SystemExit("the SOCKS server wants a password")
    control.sendall(b"\x05\x03\x00\x01" + bytes(6))
    reply = control.recv(64)
    if len(reply) < 10 or reply[1] != 0:
        raise SystemExit(f"the SOCKS server refused: {reply!r}")
    return control, struct.unpack(">H", reply[8:10])[0]


def udp():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        one.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    one.bind(("127.0.0.1", 0))
    one.setblocking(False)
    return one


# Type and version of uTP, no extension; then a kind and a number of ours.
HEAD = struct.Struct(">BBBxQ")
DATA, ACK = 0x44, 0x41


class Flow:
    """Seeder and sink of one circuit: a circuit belongs to the first association that uses it."""

    def __init__(self, port, noise):
        self.noise = noise
        self.control, relay = associate(port)
        self.relay = ("127.0.0.1", relay)
        self.seeder, self.sink = udp(), udp()
        host, at = self.seeder.getsockname()
        self.to_seeder = b"\x00\x00\x00\x01" + socket.inet_aton(host) + struct.pack(">H", at)
        self.sent = self.acknowledged = self.received = 0
        self.exit = None

    def acknowledge(self):
        data = HEAD.pack(1, 0, ACK, self.received) + bytes(32)
        self.sink.sendto(self.to_seeder + data, self.relay)

    def seed(self, last):
        """Takes acknowledgements in, and fills the window."""
        while True:
            try:
                data, self.exit = self.seeder.recvfrom(2048)
            except BlockingIOError:
                break
            if len(data) >= HEAD.size:
                self.acknowledged = max(self.acknowledged, HEAD.unpack_from(data)[3])
        while self.exit and self.sent < last and self.sent - self.acknowledged < WINDOW:
            begin = self.sent % 4096
            data = HEAD.pack(1, 0, DATA, self.sent) + self.noise[begin:begin + PAYLOAD - HEAD.size]
            try:
                self.seeder.sendto(data, self.exit)
            except BlockingIOError:
                break
            self.sent += 1

    def take(self, last):
        while self.received < last:
            try:
                data = self.sink.recv(2048)
            except BlockingIOError:
                break
            if len(data) >= PAYLOAD:
                self.received += 1
                if self.received % ACK_EVERY == 0:
                    self.acknowledge()

    def close(self):
        for one in (self.seeder, self.sink, self.control):
            one.close()


def move(flows, count):
    """Moves so many datagrams over each; the result is how long that took."""
    waiting = selectors.DefaultSelector()
    for flow in flows:
        flow.last = flow.received + count
        for one in (flow.seeder, flow.sink):
            waiting.register(one, selectors.EVENT_READ, flow)
        flow.acknowledge()
    start = heard = time.monotonic()
    left = count * len(flows)
    while left > 0:
        ready = {id(key.data): key.data for key, _ in waiting.select(0.2)}
        for flow in ready.values():
            flow.seed(flow.last)
            flow.take(flow.last)
        if not ready:
            # What was lost is sent again: only the count matters.
            for flow in flows:
                flow.sent = flow.received
                if flow.received < flow.last:
                    flow.acknowledge()
        before, left = left, sum(flow.last - flow.received for flow in flows)
        if left < before:
            heard = time.monotonic()
        elif time.monotonic() - heard > STALL:
            raise SystemExit(f"the tunnels stalled, {left} of {count * len(flows)} datagrams before the end")
    waiting.close()
    return time.monotonic() - start


def measure(nodes, hops, circuits, count, noise):
    """Moves so many datagrams over so many circuits together."""
    client = nodes[0]
    made = client.order(do="circuit", hops=hops, circuits=circuits)
    if not made["ok"]:
        raise SystemExit(f"not {circuits} circuits of {hops} hops: {made}")
    flows = [Flow(made["port"], noise) for _ in range(circuits)]
    each = max(1, count // circuits)
    move(flows, min(each, 2000))
    before = [one.cpu() for one in nodes]
    wall = move(flows, each)
    used = [one.cpu() - was for one, was in zip(nodes, before)]
    gigabytes = each * circuits * PAYLOAD / 1e9
    spent = {}
    for one, cpu in zip(nodes, used):
        spent[one.role] = spent.get(one.role, 0) + cpu
    roles = [{"role": "sink", "cpu_s_per_gb": spent["client"] / gigabytes},
             {"role": "exit", "cpu_s_per_gb": spent["exit"] / gigabytes}]
    if hops > 1:
        # Circuits may share a relay or not: together they pass all data hops - 1 times.
        roles.append({"role": "relay", "cpu_s_per_gb": spent["relay"] / gigabytes / (hops - 1)})
    for flow in flows:
        flow.close()
    client.order(do="remove")
    return {"hops": hops, "circuits": circuits, "mbit": gigabytes * 8000 / wall, "roles": roles}


def main():
    hops, circuits, megabytes, repetitions, seed = sys.argv[1:6]
    noise = random.Random(int(seed)).randbytes(8192)
    count = max(1, int(megabytes) * 1_000_000 // PAYLOAD)
    nodes = [Node(role) for role in ("client", "relay", "relay", "exit")]
    try:
        end = time.monotonic() + START
        while any(one.order(do="known")["known"] < 3 for one in nodes):
            if time.monotonic() > end:
                raise SystemExit("the nodes did not find each other")
            for one in nodes:
                for other in nodes:
                    if one is not other:
                        one.order(do="walk", to=other.address)
            time.sleep(0.3)
        wanted = [(int(one), int(many)) for one in hops.split(",") for many in circuits.split(",")]
        for _ in range(int(repetitions)):
            for length, many in wanted:
                print(json.dumps(measure(nodes, length, many, count, noise)), flush=True)
    finally:
        for one in nodes:
            one.process.stdin.close()
            one.process.kill()
            one.process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["node"]:
        asyncio.run(node())
    else:
        main()
