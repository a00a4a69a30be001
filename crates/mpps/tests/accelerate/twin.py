"""Sequences of calls on the UDP port 7777, and what each of them returned, a line each.

twin.py NAMESPACE: the peer's sockets live in the network namespace of that file. The program does the
same with and without `mpps accelerate`, and must print the same.
"""
import array, ctypes, errno, fcntl, mmap, os, select, signal, socket, struct, sys, termios, time

PORT = 7777
libc = ctypes.CDLL(None, use_errno=True)
V4, V6 = socket.AF_INET, socket.AF_INET6
HOSTS = {V4: ("10.77.0.1", "10.77.0.2"), V6: ("fd77::1", "fd77::2")}
DONTWAIT, PEEK, TRUNC, WAITFORONE = socket.MSG_DONTWAIT, socket.MSG_PEEK, socket.MSG_TRUNC, 0x10000
IP_PKTINFO, IP_RECVTTL, IP_RECVTOS = 8, 12, 13
own_namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
peer_namespace = os.open(sys.argv[1], os.O_RDONLY)

handed = os.environ.get("MPPS_ACCELERATE")
control = mmap.mmap(int(handed.split(",")[0]), 4096, prot=mmap.PROT_READ) if handed else None


def switched():
    """Waits until the launcher has switched the port."""
    until = time.monotonic() + 5
    while control and not struct.unpack_from("I", control, 24)[0] & 1:
        assert time.monotonic() < until, "not switched"
        time.sleep(0.002)


def peer(family, options=()):
    assert libc.setns(peer_namespace, 0) == 0
    made = socket.socket(family, socket.SOCK_DGRAM)
    assert libc.setns(own_namespace, 0) == 0
    made.settimeout(2)
    for option in options:
        made.setsockopt(*option)
    made.bind((HOSTS[family][1], 0))
    return made


class Scene:
    def __init__(self, family, address=None):
        self.family = family
        self.server = socket.socket(family, socket.SOCK_DGRAM)
        self.server.bind((HOSTS[family][0] if address is None else address, PORT))
        self.peer = peer(family)
        self.server.setblocking(False)
        poll(self.server, 0)
        switched()

    def send(self, *payloads, to=None):
        for payload in payloads:
            self.peer.sendto(payload, to or (HOSTS[self.family][0], PORT))

    def arrive(self, *payloads):
        """Sends, and waits until the last one can be read."""
        self.send(*payloads)
        assert poll(self.server, 2000), "nothing arrived"
        # The first one can be read; the last one may be on its way.
        time.sleep(0.005 * len(payloads[1:]) ** 0.5)

    def close(self):
        self.server.close()
        self.peer.close()


def poll(sock, ms, events=select.POLLIN):
    polled = select.poll()
    polled.register(sock, events)
    return [mask for _, mask in polled.poll(ms)]


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def name(address):
    """An address without the peer's port."""
    return address if isinstance(address, str) or address is None else (address[0],) + tuple(address[2:])


def received(result):
    return result if isinstance(result, str) else (result[0], name(result[1]))


def message(sock, bytes=2048, control_bytes=256, flags=0):
    result = outcome(sock.recvmsg, bytes, control_bytes, flags)
    if isinstance(result, str):
        return result
    data, extra, flags, address = result
    return data, [(level, kind, value.hex()) for level, kind, value in extra], flags, name(address)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class Header(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p), ("name_bytes", ctypes.c_uint), ("parts", ctypes.c_void_p),
        ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int), ("gap", ctypes.c_int), ("length", ctypes.c_uint), ("padding", ctypes.c_uint)]


def messages(count, bytes, names=True):
    buffers = [ctypes.create_string_buffer(bytes) for _ in range(count)]
    addresses = [ctypes.create_string_buffer(28) for _ in range(count)]
    parts = (Iovec * count)(*[Iovec(ctypes.addressof(buffer), bytes) for buffer in buffers])
    headers = (Header * count)()
    for at in range(count):
        headers[at].parts = ctypes.addressof(parts) + at * ctypes.sizeof(Iovec)
        headers[at].count = 1
        if names:
            headers[at].name, headers[at].name_bytes = ctypes.addressof(addresses[at]), 28
    return headers, buffers, addresses, parts


def recvmmsg(scene, count, flags, timeout=None, bytes=64):
    headers, buffers, addresses, _parts = messages(count, bytes)
    limit = (ctypes.c_long * 2)(*timeout) if timeout else None
    got = libc.recvmmsg(scene.server.fileno(), headers, count, flags, limit)
    if got < 0:
        return errno.errorcode[ctypes.get_errno()]
    rows = range(got)
    return [(buffers[at].raw[: min(headers[at].length, bytes)], headers[at].length, headers[at].flags,
             headers[at].name_bytes) for at in rows]


SEQUENCES = []


def sequence(*families):
    def add(work):
        SEQUENCES.extend((work, family) for family in families or (V4, V6))
        return work
    return add


@sequence()
def echo(scene):
    scene.arrive(b"one")
    data, address = scene.server.recvfrom(100)
    yield data, name(address), address[1] == scene.peer.getsockname()[1]
    yield scene.server.sendto(b"answer", address)
    yield scene.peer.recvfrom(100)


@sequence()
def nothing_there(scene):
    yield outcome(scene.server.recvfrom, 100)
    yield message(scene.server)
    yield outcome(scene.server.recv, 100, DONTWAIT)
    yield outcome(os.read, scene.server.fileno(), 100)
    yield recvmmsg(scene, 4, DONTWAIT)


@sequence()
def order(scene):
    scene.arrive(*[b"%d" % at for at in range(50)])
    yield [scene.server.recv(10) for _ in range(50)]
    yield outcome(scene.server.recv, 10)


@sequence()
def cut(scene):
    scene.arrive(b"0123456789", b"next")
    yield message(scene.server, 4)
    yield message(scene.server, 4)
    scene.arrive(b"0123456789", b"next")
    yield scene.server.recv(4), scene.server.recv(4)


@sequence()
def length_of_a_cut_one(scene):
    scene.arrive(b"0123456789")
    buffer = bytearray(4)
    yield scene.server.recv_into(buffer, 4, TRUNC), bytes(buffer)


@sequence()
def peeked(scene):
    scene.arrive(b"first", b"second")
    yield received(scene.server.recvfrom(100, PEEK)), received(scene.server.recvfrom(100, PEEK | TRUNC))
    yield scene.server.recv(2, PEEK), scene.server.recv(100), scene.server.recv(100)


@sequence()
def empty(scene):
    scene.arrive(b"", b"x")
    yield received(scene.server.recvfrom(100)), received(scene.server.recvfrom(100))


@sequence()
def into_nothing(scene):
    scene.arrive(b"abc", b"def")
    yield os.read(scene.server.fileno(), 0)
    yield scene.server.recv(0)
    yield os.read(scene.server.fileno(), 100)


@sequence()
def read_and_readv(scene):
    scene.arrive(b"abcdef", b"ghijkl")
    yield os.read(scene.server.fileno(), 4)
    parts = [bytearray(2), bytearray(3)]
    yield os.readv(scene.server.fileno(), parts), parts


@sequence()
def parts(scene):
    scene.arrive(b"abcdefgh")
    buffers = [bytearray(3), bytearray(0), bytearray(10)]
    got, _, flags, address = scene.server.recvmsg_into(buffers)
    yield got, buffers, flags, name(address)
    yield scene.server.sendmsg([b"ab", b"", b"cde"], [], 0, address), scene.peer.recv(100)


@sequence()
def readable(scene):
    yield poll(scene.server, 0), poll(scene.server, 20)
    scene.arrive(b"x")
    everything = select.POLLIN | select.POLLOUT | select.POLLPRI | select.POLLRDNORM | select.POLLERR
    yield poll(scene.server, 0), poll(scene.server, 0, everything), poll(scene.server, 0, select.POLLOUT)
    yield scene.server.recv(10), poll(scene.server, 0, everything)


@sequence()
def polled_with_others(scene):
    reading, writing = os.pipe()
    polled = select.poll()
    polled.register(reading, select.POLLIN)
    polled.register(scene.server, select.POLLIN)
    os.write(writing, b"x")
    yield len(polled.poll(0))
    scene.arrive(b"x")
    yield len(polled.poll(0))
    os.read(reading, 1)
    yield [mask for _, mask in polled.poll(1000)]
    os.close(writing)
    yield sorted(mask for _, mask in polled.poll(0))
    os.close(reading)


@sequence()
def selected(scene):
    fd = scene.server
    yield select.select([fd], [], [], 0) == ([], [], []), select.select([fd], [fd], [fd], 0) == ([], [fd], [])
    scene.arrive(b"x")
    yield select.select([fd], [fd], [fd], 1) == ([fd], [fd], [])
    yield fd.recv(10), select.select([fd], [], [], 0.02) == ([], [], [])


def waited(scene, flags, steps):
    """Events after each step; data is a number of our own."""
    epoll = select.epoll()
    epoll.register(scene.server, flags)
    number = scene.server.fileno()
    for step in steps:
        step()
        yield [(fd == number, mask) for fd, mask in epoll.poll(0.05, 8)]
    epoll.close()


@sequence()
def level(scene):
    arrive, take = lambda: scene.arrive(b"x"), lambda: scene.server.recv(10)
    yield from waited(scene, select.EPOLLIN, [int, arrive, int, take, int, arrive, arrive, take, take])


@sequence()
def level_both_ways(scene):
    arrive, take = lambda: scene.arrive(b"x"), lambda: scene.server.recv(10)
    yield from waited(scene, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDNORM, [int, arrive, int, take])


@sequence()
def edge(scene):
    arrive, take = lambda: scene.arrive(b"x"), lambda: scene.server.recv(10)
    steps = [int, arrive, int, arrive, take, take, int, arrive, int, take]
    yield from waited(scene, select.EPOLLIN | select.EPOLLET, steps)


@sequence()
def once(scene):
    arrive, take = lambda: scene.arrive(b"x"), lambda: scene.server.recv(10)
    yield from waited(scene, select.EPOLLIN | select.EPOLLONESHOT, [int, arrive, int, take, arrive, int, take])


@sequence()
def once_again(scene):
    epoll = select.epoll()
    epoll.register(scene.server, select.EPOLLIN | select.EPOLLONESHOT)
    scene.arrive(b"x")
    yield [mask for _, mask in epoll.poll(1)], epoll.poll(0)
    epoll.modify(scene.server, select.EPOLLIN | select.EPOLLONESHOT)
    yield [mask for _, mask in epoll.poll(1)], epoll.poll(0)
    epoll.modify(scene.server, select.EPOLLOUT)
    yield [mask for _, mask in epoll.poll(1)]
    epoll.modify(scene.server, select.EPOLLIN)
    yield [mask for _, mask in epoll.poll(1)], scene.server.recv(10), epoll.poll(0)
    epoll.unregister(scene.server)
    scene.arrive(b"x")
    yield epoll.poll(0), scene.server.recv(10)
    epoll.close()


@sequence()
def registered_late(scene):
    scene.arrive(b"x")
    yield from waited(scene, select.EPOLLIN, [int, lambda: scene.server.recv(10)])
    scene.arrive(b"x")
    yield from waited(scene, select.EPOLLIN | select.EPOLLET, [int, int, lambda: scene.server.recv(10)])


@sequence()
def nested(scene):
    inner, outer = select.epoll(), select.epoll()
    inner.register(scene.server, select.EPOLLIN)
    outer.register(inner, select.EPOLLIN)
    yield outer.poll(0)
    scene.arrive(b"x")
    yield [mask for _, mask in outer.poll(1)], [mask for _, mask in inner.poll(0)], poll(inner, 0)
    yield scene.server.recv(10), outer.poll(0)
    inner.close(), outer.close()


@sequence()
def epoll_errors(scene):
    epoll = select.epoll()
    epoll.register(scene.server, select.EPOLLIN)
    yield outcome(epoll.register, scene.server, select.EPOLLIN)
    yield outcome(epoll.unregister, scene.server), outcome(epoll.unregister, scene.server)
    yield outcome(epoll.modify, scene.server, select.EPOLLIN)
    epoll.close()


@sequence()
def blocking(scene):
    scene.server.setblocking(True)
    child = os.fork()
    if child == 0:
        time.sleep(0.1)
        scene.send(b"late")
        os._exit(0)
    yield received(scene.server.recvfrom(100))
    os.waitpid(child, 0)


@sequence()
def with_a_time_limit(scene):
    scene.server.setblocking(True)
    scene.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    began = time.monotonic()
    yield outcome(scene.server.recv, 10)
    yield 0.04 < time.monotonic() - began < 0.5
    scene.arrive(b"x")
    yield scene.server.recv(10)


@sequence()
def interrupted(scene):
    def ring(*_):
        raise KeyboardInterrupt
    scene.server.setblocking(True)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        yield scene.server.recv(10)
    except KeyboardInterrupt:
        yield "interrupted"
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


@sequence()
def many_at_once(scene):
    scene.arrive(b"a", b"bb", b"ccc", b"0123456789" * 8)
    yield recvmmsg(scene, 3, DONTWAIT)
    yield recvmmsg(scene, 3, DONTWAIT)
    yield recvmmsg(scene, 3, DONTWAIT)


@sequence()
def many_waiting_for_one(scene):
    scene.server.setblocking(True)
    scene.arrive(b"a", b"b")
    yield recvmmsg(scene, 8, WAITFORONE)
    scene.arrive(b"a", b"b")
    yield recvmmsg(scene, 2, 0)
    scene.arrive(b"a", b"b")
    yield recvmmsg(scene, 1, 0, (1, 0)), recvmmsg(scene, 1, 0, (1, 0))
    yield recvmmsg(scene, 1, 0, (0, 2_000_000_000))


@sequence()
def many_sent(scene):
    scene.arrive(b"x")
    _, address = scene.server.recvfrom(10)
    headers, buffers, addresses, _parts = messages(3, 4)
    where = (struct.pack("=HH4s8x", V4, socket.htons(address[1]), socket.inet_pton(V4, address[0]))
             if scene.family == V4 else
             struct.pack("=HHI16sI", V6, socket.htons(address[1]), 0, socket.inet_pton(V6, address[0]), 0))
    for at in range(3):
        buffers[at].value = b"%d" % at
        ctypes.memmove(addresses[at], where, len(where))
        headers[at].name_bytes = len(where)
    yield libc.sendmmsg(scene.server.fileno(), headers, 3, 0), [header.length for header in headers]
    yield [scene.peer.recv(10) for _ in range(3)]
    headers[1].name_bytes = 3
    yield libc.sendmmsg(scene.server.fileno(), headers, 3, 0), scene.peer.recv(10)
    yield libc.sendmmsg(scene.server.fileno(), ctypes.byref(headers, ctypes.sizeof(Header)), 1, 0)


@sequence()
def without_a_target(scene):
    yield outcome(scene.server.send, b"x"), outcome(os.write, scene.server.fileno(), b"x")
    yield outcome(scene.server.sendmsg, [b"x"])


@sequence()
def to_strangers(scene):
    host = HOSTS[scene.family][1]
    yield scene.server.sendto(b"unasked", scene.peer.getsockname()), scene.peer.recvfrom(10)
    yield outcome(scene.server.sendto, b"x", (host, 0))
    nowhere = "192.0.2.1" if scene.family == V4 else "2001:db8::1"
    yield outcome(scene.server.sendto, b"x", (nowhere, 9))


@sequence()
def to_itself(scene):
    host = HOSTS[scene.family][0]
    yield scene.server.sendto(b"loop", (host, PORT))
    yield poll(scene.server, 1000), scene.server.recvfrom(10)


@sequence()
def sizes(scene):
    scene.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    headers = 28 if scene.family == V4 else 48
    for size in 0, 1, 2, 3, 17, 18, 19, 512, 1500 - headers - 1, 1500 - headers, 1500 - headers + 1, 4000, 20_000:
        payload = bytes(at % 251 for at in range(size))
        scene.arrive(payload)
        data, address = scene.server.recvfrom(65_536)
        yield data == payload, scene.server.sendto(data, address), scene.peer.recv(65_536) == payload
    yield outcome(scene.server.sendto, bytes(70_000), address)


ASKED = {V4: [(0, IP_PKTINFO), (0, IP_RECVTTL), (0, IP_RECVTOS)],
         V6: [(41, socket.IPV6_RECVPKTINFO), (41, socket.IPV6_RECVHOPLIMIT), (41, socket.IPV6_RECVTCLASS)]}
MARKS = {V4: [(0, socket.IP_TTL, 33), (0, socket.IP_TOS, 0xb8)],
         V6: [(41, socket.IPV6_UNICAST_HOPS, 33), (41, socket.IPV6_TCLASS, 0xb8)]}


@sequence()
def control_messages(scene):
    for option in MARKS[scene.family]:
        scene.peer.setsockopt(*option)
    for option in ASKED[scene.family]:
        scene.server.setsockopt(*option, 1)
        scene.arrive(b"x")
        yield message(scene.server)
    for room in 0, 8, 15, 16, 20, 28, 40, 60, 63, 64, 88:
        scene.arrive(b"x")
        yield room, message(scene.server, 10, room)
    scene.arrive(b"x")
    yield scene.server.recvfrom(10)[0]
    for option in ASKED[scene.family]:
        scene.server.setsockopt(*option, 0)
        scene.arrive(b"x")
        yield message(scene.server)


@sequence()
def sent_from_a_source(scene):
    scene.arrive(b"x")
    _, address = scene.server.recvfrom(10)
    host = socket.inet_pton(scene.family, HOSTS[scene.family][0])
    info = [(0, IP_PKTINFO, struct.pack("=I4s4s", 0, host, host))] if scene.family == V4 else \
        [(41, socket.IPV6_PKTINFO, struct.pack("=16sI", host, 0))]
    yield scene.server.sendmsg([b"here"], info, 0, address), scene.peer.recvfrom(10)
    wrong = bytes([192, 0, 2, 1]) if scene.family == V4 else socket.inet_pton(V6, "2001:db8::1")
    info = [(0, IP_PKTINFO, struct.pack("=I4s4s", 0, wrong, wrong))] if scene.family == V4 else \
        [(41, socket.IPV6_PKTINFO, struct.pack("=16sI", wrong, 0))]
    yield outcome(scene.server.sendmsg, [b"x"], info, 0, address)
    yield outcome(scene.server.sendmsg, [b"x"], [(scene.family == V6 and 41 or 0, 77, b"abcd")], 0, address)


@sequence()
def headers_of_answers(scene):
    for option in ASKED[scene.family]:
        scene.peer.setsockopt(*option, 1)
    for option in [(0, 0, 0)] + MARKS[scene.family]:
        if option[1]:
            scene.server.setsockopt(*option)
        scene.arrive(b"x")
        _, address = scene.server.recvfrom(10)
        scene.server.sendto(b"y", address)
        yield message(scene.peer)


@sequence()
def copies_of_the_descriptor(scene):
    copy = os.dup(scene.server.fileno())
    other = socket.socket(fileno=os.dup2(scene.server.fileno(), 200))
    scene.arrive(b"a", b"b", b"c")
    yield os.read(copy, 10), scene.server.recv(10), other.recv(10)
    scene.arrive(b"d")
    os.close(copy)
    other.close()
    yield poll(scene.server, 0), scene.server.recv(10), outcome(os.read, copy, 1)


@sequence()
def two_processes(scene):
    scene.arrive(b"a", b"b")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, scene.server.recv(10))
        os._exit(0)
    os.waitpid(child, 0)
    yield os.read(reading, 10), scene.server.recv(10), outcome(scene.server.recv, 10)
    os.close(reading), os.close(writing)


@sequence()
def bytes_to_read(scene):
    def ask():
        answer = array.array("i", [-1])
        fcntl.ioctl(scene.server, termios.FIONREAD, answer)
        return answer[0]
    yield ask()
    scene.arrive(b"12345", b"678")
    yield ask(), scene.server.recv(10), ask(), scene.server.recv(10), ask()


@sequence()
def refused_by_the_peer(scene):
    scene.server.setsockopt(0 if scene.family == V4 else 41, 11 if scene.family == V4 else 25, 1)
    gone = peer(scene.family)
    gone.sendto(b"x", (HOSTS[scene.family][0], PORT))
    poll(scene.server, 1000)
    _, address = scene.server.recvfrom(10)
    gone.close()
    yield scene.server.sendto(b"y", address)
    yield poll(scene.server, 1000), outcome(scene.server.recv, 10)
    data, extra, flags, where = scene.server.recvmsg(100, 512, socket.MSG_ERRQUEUE)
    yield data, [(level, kind, value[:8]) for level, kind, value in extra], flags, name(where)
    yield poll(scene.server, 0)


@sequence()
def shut(scene):
    yield outcome(scene.server.shutdown, socket.SHUT_RD)
    yield outcome(scene.server.recv, 10)


@sequence()
def connected(scene):
    scene.arrive(b"before")
    yield received(scene.server.recvfrom(10))
    scene.server.connect(scene.peer.getsockname())
    other = peer(scene.family)
    other.sendto(b"other", (HOSTS[scene.family][0], PORT))
    scene.send(b"mine")
    yield poll(scene.server, 1000), scene.server.recv(10), outcome(scene.server.recv, 10)
    yield scene.server.send(b"answer"), scene.peer.recv(10)
    other.close()


@sequence()
def timestamps(scene):
    scene.arrive(b"x")
    yield scene.server.recv(10)
    scene.server.setsockopt(socket.SOL_SOCKET, 35, 1)
    time.sleep(0.05)
    scene.arrive(b"y")
    data, extra, flags, _ = scene.server.recvmsg(10, 100)
    yield data, [(level, kind, len(value)) for level, kind, value in extra], flags


@sequence()
def options_of_the_library(scene):
    yield outcome(scene.server.recvfrom, 10, socket.MSG_OOB), outcome(scene.server.recvfrom, 10, socket.MSG_ERRQUEUE)
    yield outcome(os.close, 9999), outcome(os.read, 9999, 1), poll(9998, 0)
    yield scene.server.getsockname()[:2], outcome(scene.server.getpeername)


def dual(scene):
    """A socket of IPv6 that takes IPv4, too."""
    four = peer(V4)
    for at in ASKED[V4] + ASKED[V6]:
        scene.server.setsockopt(*at, 1)
    four.sendto(b"four", (HOSTS[V4][0], PORT))
    yield poll(scene.server, 1000)
    data, extra, flags, address = scene.server.recvmsg(10, 256)
    yield data, [(level, kind, value.hex()) for level, kind, value in extra], flags, name(address)
    yield scene.server.sendto(b"answer", address), four.recvfrom(10)
    scene.arrive(b"six")
    yield message(scene.server)
    four.close()


def two_sockets(scene):
    """Each gets its own, whichever is read first."""
    other = socket.socket(V6, socket.SOCK_DGRAM)
    other.setsockopt(41, socket.IPV6_V6ONLY, 1)
    other.bind(("::", PORT))
    other.setblocking(False)
    poll(other, 0)
    time.sleep(0.3)
    switched()
    six = peer(V6)
    for at in range(6):
        scene.send(b"four%d" % at)
        six.sendto(b"six%d" % at, (HOSTS[V6][0], PORT))
    yield poll(other, 1000), poll(scene.server, 1000)
    yield [other.recv(10) for _ in range(6)], outcome(other.recv, 10)
    yield poll(scene.server, 0), poll(other, 0)
    yield [scene.server.recv(10) for _ in range(6)], outcome(scene.server.recv, 10)
    epoll = select.epoll()
    epoll.register(scene.server, select.EPOLLIN)
    epoll.register(other, select.EPOLLIN)
    six.sendto(b"x", (HOSTS[V6][0], PORT))
    yield [fd == other.fileno() for fd, _ in epoll.poll(1)], other.recv(10)
    scene.send(b"y")
    yield [fd == other.fileno() for fd, _ in epoll.poll(1)], scene.server.recv(10), epoll.poll(0)
    other.close(), six.close(), epoll.close()


def main():
    only = sys.argv[2:]
    scenes = [(work, family, HOSTS[family][0]) for work, family in SEQUENCES]
    scenes += [(work, family, any) for work, family in SEQUENCES if work in (echo, sizes, level)
               for any in [{V4: "0.0.0.0", V6: "::"}[family]]]
    scenes += [(dual, V6, "::"), (two_sockets, V4, "0.0.0.0")]
    for work, family, address in scenes:
        title = f"{work.__name__} {4 if family == V4 else 6} {address}"
        if only and work.__name__ not in only:
            continue
        scene = Scene(family, address)
        try:
            steps = [repr(step) for step in work(scene)]
        except Exception as error:
            steps = [f"failed: {error!r} at {error.__traceback__.tb_next.tb_lineno}"]
        for step in steps:
            print(f"{title}: {step}")
        sys.stdout.flush()
        scene.close()


main()
