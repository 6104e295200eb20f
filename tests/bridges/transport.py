"""A pluggable transport that XORs each byte: both sides of pt-spec, and ext-orport-spec on a bridge."""
import hashlib, hmac, os, socket, struct, sys, threading

ENV = os.environ


def say(line):
    print(line, flush=True)


def whole(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def pump(one, other, key):
    try:
        while data := one.recv(65536):
            other.sendall(bytes(b ^ key for b in data))
    except OSError:
        pass
    for sock, how in ((other, socket.SHUT_WR), (one, socket.SHUT_RD)):
        try:
            sock.shutdown(how)
        except OSError:
            pass


def both(one, other, key):
    threading.Thread(target=pump, args=(one, other, key), daemon=True).start()
    pump(other, one, key)


def address(text):
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)


def hand_over(peer):
    sock = socket.create_connection(address(ENV["TOR_PT_EXTENDED_SERVER_PORT"]))
    with open(ENV["TOR_PT_AUTH_COOKIE_FILE"], "rb") as file:
        content = file.read()
    assert content[:32] == b"! Extended ORPort Auth Cookie !\n" and len(content) == 64
    while whole(sock, 1) != b"\0":
        pass
    nonce = os.urandom(32)
    sock.sendall(b"\1" + nonce)
    theirs, server_nonce = whole(sock, 32), whole(sock, 32)
    sign = lambda text: hmac.new(content[32:], text + nonce + server_nonce, hashlib.sha256).digest()
    assert theirs == sign(b"ExtORPort authentication server-to-client hash")
    sock.sendall(sign(b"ExtORPort authentication client-to-server hash"))
    assert whole(sock, 1) == b"\1"
    user = ("%s:%d" % peer[:2]).encode()
    for command, body in ((1, user), (2, b"xor"), (0, b"")):
        sock.sendall(struct.pack("!HH", command, len(body)) + body)
    command, length = struct.unpack("!HH", whole(sock, 4))
    whole(sock, length)
    assert command == 0x1000
    return sock


def socks(sock):
    """What a client asks for; the transport's arguments are in its name and password."""
    _, count = whole(sock, 2)
    methods = whole(sock, count)
    key = 85
    if 2 in methods:
        sock.sendall(b"\5\2")
        _, length = whole(sock, 2)
        arguments = whole(sock, length)
        arguments += whole(sock, whole(sock, 1)[0]).rstrip(b"\0")
        assert arguments == b"key=85", arguments
        sock.sendall(b"\1\0")
    else:
        sock.sendall(b"\5\0")
    _, _, _, kind = whole(sock, 4)
    assert kind == 1
    host = socket.inet_ntoa(whole(sock, 4))
    port = struct.unpack("!H", whole(sock, 2))[0]
    far = socket.create_connection((host, port))
    sock.sendall(b"\5\0\0\1" + bytes(6))
    return far, key


def serve(listener, accept):
    while True:
        sock, peer = listener.accept()

        def run(sock=sock, peer=peer):
            try:
                far, key = accept(sock, peer)
                both(sock, far, key)
            except (OSError, EOFError, AssertionError) as why:
                print("xor:", repr(why), file=sys.stderr, flush=True)
                sock.close()

        threading.Thread(target=run, daemon=True).start()


def main():
    assert ENV["TOR_PT_MANAGED_TRANSPORT_VER"] == "1" and ENV["TOR_PT_EXIT_ON_STDIN_CLOSE"] == "1"
    say("VERSION 1")
    if "TOR_PT_SERVER_TRANSPORTS" in ENV:
        assert ENV["TOR_PT_SERVER_TRANSPORTS"] == "xor"
        assert ENV["TOR_PT_SERVER_TRANSPORT_OPTIONS"] == "xor:key=85"
        name, place = ENV["TOR_PT_SERVER_BINDADDR"].split("-", 1)
        listener = socket.create_server(address(place))
        say("SMETHOD xor %s:%d ARGS:shared=yes" % listener.getsockname()[:2])
        say("SMETHODS DONE")
        accept = lambda sock, peer: (hand_over(peer), 85)
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        say("CMETHOD xor socks5 %s:%d" % listener.getsockname()[:2])
        say("CMETHODS DONE")
        accept = lambda sock, peer: socks(sock)
    threading.Thread(target=serve, args=(listener, accept), daemon=True).start()
    sys.stdin.read()


main()
