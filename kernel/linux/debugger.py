"""A guest of QEMU, stepped through by its gdbstub, and the names of what is stepped through."""

import bisect
import re
import shutil
import socket
import subprocess
import sys
import time

RSP, RIP = 7, 16


class Debugger:
    """QEMU's end of the remote protocol of gdb, as far as it is needed."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        # The machine stops, which it may or may not say before it is asked.
        self.ask("?")
        time.sleep(1)
        self.socket.setblocking(False)
        try:
            while self.socket.recv(65536):
                pass
        except BlockingIOError:
            pass
        self.socket.setblocking(True)
        self.received = b""

    def ask(self, text):
        packet = text.encode()
        self.socket.sendall(b"$%s#%02x" % (packet, sum(packet) & 255))
        while True:
            match = re.match(rb"[^$]*\$([^#]*)#..", self.received, re.S)
            if match:
                self.received = self.received[match.end() :]
                self.socket.sendall(b"+")
                return match[1].decode()
            more = self.socket.recv(65536)
            if not more:
                sys.exit("the machine is gone")
            self.received += more

    def register(self, number):
        # All at once: QEMU answers for single ones only those that have asked for its XML.
        all_of_them = bytes.fromhex(self.ask("g"))
        return int.from_bytes(all_of_them[8 * number : 8 * number + 8], "little")

    def word(self, address):
        return int.from_bytes(bytes.fromhex(self.ask(f"m{address:x},8")), "little")

    def step(self):
        self.ask("s")
        return self.register(RIP)


class Symbols:
    """Functions by address, of a text like kallsyms: addresses, types, names."""

    def __init__(self, path):
        found = []
        for line in path.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) >= 3 and words[1] in "tT" and not words[2].startswith("__pfx_"):
                found.append((int(words[0], 16), words[2]))
        if not found:
            sys.exit(f"no symbols in {path}")
        found.sort()
        self.addresses = [address for address, _ in found]
        self.names = demangled([name for _, name in found])

    def address(self, name):
        if name not in self.names:
            sys.exit(f"no function {name}")
        return self.addresses[self.names.index(name)]

    def at(self, address):
        return self.names[bisect.bisect_right(self.addresses, address) - 1]


def demangled(names):
    if not shutil.which("c++filt"):
        return names
    text = "\n".join(names)
    shown = subprocess.run(["c++filt", "-r"], input=text, text=True, stdout=subprocess.PIPE)
    shown = shown.stdout if shown.returncode == 0 else text
    return [re.sub(r"<.*?>::|::h[0-9a-f]{16}$|::<.*", "", name) for name in shown.splitlines()]
