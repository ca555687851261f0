"""A guest in QEMU: its first file system, the run, and what it printed.

Shared by kernel/linux/boot, which boots a distribution's kernel with the module, and
kernel/linux/vmlinux/boot, which boots a kernel whose page allocator is Freehold.
"""

import argparse
import gzip
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

RESULT = re.compile(r"freehold: result: (.*)")
EXIT = re.compile(r"freehold: exit (\d+)")
TROUBLE = re.compile(
    r"BUG:|kernel BUG|Oops|WARNING:|Kernel panic|soft lockup|blocked for more than|"
    r"rcu.*(stall|detected)|possible .*(deadlock|recursive locking)|inconsistent lock state|"
    r"Bad page|nobody cared|freehold: (panic|error|torture:|conformance:)"
)
# What the guest's init begins with: $files is where Freehold has its files.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mount -t debugfs debugfs /sys/kernel/debug
failed=0; files=/sys/kernel/debug/freehold
failing() { echo "freehold: error: $*"; failed=1; }
for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do
    [ ! -e $cpu ] || [ $(cat $cpu) = 1 ] || echo 1 > $cpu || failing $cpu
done
"""
END = 'echo "freehold: exit $failed"\npoweroff -f\n'


def fail(text, code=1):
    print(text if code == 77 else f"boot: {text}", file=sys.stderr)
    sys.exit(code)


def options_of(text):
    """A parser with the options that both have."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", help="version, as build has it; default: newest")
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="of the machine")
    parser.add_argument("--icount", action="store_true", help="count instructions")
    parser.add_argument("--time-limit", type=int, default=300, metavar="S", help="a hang fails")
    parser.add_argument("--cmdline", default="", help="more for the kernel's command line")
    parser.add_argument("--json", action="store_true", help="one result a line")
    parser.add_argument("--console", action="store_true", help="show what the guest prints")
    parser.add_argument("--gdb", metavar="PORT", help="a gdbstub on this port")
    return parser


def newest(folders, has, build):
    """The folder of the newest kernel that has a file; `build` makes one."""
    folders = sorted((folder for folder in folders if (folder / has).exists()), key=by_version)
    if not folders:
        fail(f"SKIPPED: nothing is built: run {build} --install", 77)
    if not shutil.which("qemu-system-x86_64"):
        fail("SKIPPED: no qemu-system-x86_64: apt-get install qemu-system-x86", 77)
    return folders[-1]


def by_version(folder):
    # The shorter name last, which is that without more options.
    return [int(part) for part in re.findall(r"\d+", folder.name)], -len(folder.name)


def initrd(files, script, path, tree=None):
    """The first file system: busybox first among the files, a script as init, all of a folder."""
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        if tree:
            shutil.copytree(tree, root, symlinks=True, dirs_exist_ok=True)
        for name in ("bin", "dev", "proc", "root", "sys", "tmp"):
            (root / name).mkdir()
        busybox, *rest = files
        shutil.copy(busybox, root / "bin/busybox")
        for file in rest:
            shutil.copy(file, root)
        (root / "init").write_text(script)
        (root / "init").chmod(0o755)
        names = "\n".join(str(file.relative_to(root)) for file in sorted(root.rglob("*")))
        archive = subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet", "--owner=0:0"],
            input=names.encode(), cwd=root, stdout=subprocess.PIPE, check=True,
        ).stdout
    path.write_bytes(gzip.compress(archive, 1))


def machine(options, image, ramdisk, symbols=None, disk=None, more=(), as_shipped=False):
    """The command that starts QEMU; the guest prints to the symbols through its second port.
    `as_shipped` leaves the kernel's defaults; `more` has other arguments."""
    # `maxcpus=1`: QEMU runs a CPU until the next timer, and early in the boot there is none, so one
    # CPU would wait minutes for another; the guest's init brings the rest online.
    # `init_on_alloc=0`: the kernel's allocator is not alone in zeroing pages. `mitigations=off`:
    # indirect calls and returns cost what they do by themselves. `nokaslr`: addresses repeat.
    # `tsc=reliable`: on a busy host the kernel would find its clock unstable and rewrite its own
    # code, of which another CPU of QEMU may have executed half: a breakpoint that nobody knows.
    cmdline = (
        "console=ttyS0 panic=-1 oops=panic loglevel=7 "
        + ("" if as_shipped else "init_on_alloc=0 mitigations=off nokaslr ")
        + ("maxcpus=1 " if options.icount else "tsc=reliable ")
        + options.cmdline
    )
    command = ["qemu-system-x86_64", "-machine", "q35", "-cpu", "max,-la57"]
    command += ["-m", str(options.memory), "-smp", str(options.cpus)]
    command += ["-display", "none", "-monitor", "none", "-no-reboot", "-nic", "none"]
    command += ["-serial", "stdio", "-serial", f"file:{symbols}" if symbols else "null"]
    command += ["-icount", "shift=0,sleep=off"] if options.icount else []
    command += ["-accel", "tcg" if options.icount else "tcg,thread=multi"]
    command += ["-gdb", f"tcp:127.0.0.1:{options.gdb}"] if options.gdb else []
    command += ["-drive", f"file={disk},if=virtio,format=raw"] if disk else []
    command += more
    command += ["-kernel", str(image), "-initrd", str(ramdisk), "-append", cmdline]
    return command


def resident_mib(pid):
    """The host's memory that a process has."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s*(\d+)", status)[1]) >> 10


def run(options, command, log):
    """What the guest printed. Ends it if it takes longer than its time. Where that is
    `resident_mib=host`, it has how much of the host's memory the guest takes."""
    guest = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    expired = []

    def expire(*_):
        expired.append(True)
        guest.kill()

    signal.signal(signal.SIGALRM, expire)
    signal.signal(signal.SIGTERM, expire)
    signal.alarm(options.time_limit)
    lines = []
    with log.open("w") as file:
        for line in guest.stdout:
            line = line.decode(errors="replace").rstrip()
            if "resident_mib=host" in line:
                line = line.replace("=host", f"={resident_mib(guest.pid)}")
            lines.append(line)
            print(line, file=file, flush=True)
            if options.console:
                print(line, file=sys.stderr)
            if options.gdb and RESULT.search(line):
                print(line, flush=True)
    guest.wait()
    signal.alarm(0)
    return lines, bool(expired)


def results_of(lines):
    found = [match[1] for line in lines if (match := RESULT.search(line))]
    return [dict(pair.split("=", 1) for pair in text.split() if "=" in pair) for text in found]


def judge(options, lines, hung, wanted, log):
    """Fails if anything is wrong, or if a kind of result that is wanted is missing."""
    results = results_of(lines)
    silent = set(wanted) - {result.get("run") for result in results}
    wrong = [
        str(result) for result in results
        if any(result.get(name, "0") != "0" for name in ("failed", "errors"))
    ]
    trouble = [line for line in lines if TROUBLE.search(line)]
    exits = [match[1] for line in lines if (match := EXIT.search(line))]
    if hung:
        fail(f"it hung, or took longer than {options.time_limit} s: {log}")
    if trouble or exits != ["0"]:
        fail("\n".join(["the guest is in trouble:", *trouble[:20], f"all of it: {log}"]))
    if silent or wrong:
        fail("\n".join([f"without results: {sorted(silent)}; with errors:", *wrong,
                        f"all of it: {log}"]))


def table(rows, columns_by, shown, results):
    """One kind of results as aligned text."""
    columns = list(dict.fromkeys(result[columns_by] for result in results))
    lines = {}
    for result in results:
        values = [result[name] for name in shown]
        cell = values[0] if len(values) == 1 else f"{values[0]} ({', '.join(values[1:])})"
        lines.setdefault(tuple(result[row] for row in rows), {})[result[columns_by]] = cell
    text = [[*rows, *columns]]
    for key, cells in lines.items():
        text.append([*key, *(cells.get(column, "-") for column in columns)])
    widths = [max(len(line[nth]) for line in text) for nth in range(len(text[0]))]
    for line in text:
        cells = (
            cell.ljust(width) if nth < len(rows) else cell.rjust(width)
            for nth, (cell, width) in enumerate(zip(line, widths))
        )
        print("  ".join(cells).rstrip())


def show(options, folder, results, tables):
    """Results as JSON lines, or as tables: by kind, what makes a row, what a column, and what is in
    a cell."""
    if options.json:
        for result in results:
            print(json.dumps({"kernel": folder.name, "icount": options.icount, **result}))
        return
    kinds = {}
    for result in results:
        kinds.setdefault(result.get("run"), []).append(result)
    for kind, of_kind in kinds.items():
        rows, column, shown = tables.get(kind, (None, None, None))
        if rows:
            print(f"{kind}: {' ('.join([shown[0], ', '.join(shown[1:])])})" if shown[1:]
                  else f"{kind}: {shown[0]}")
            table(rows, column, shown, of_kind)
        else:
            for result in of_kind:
                print(" ".join(f"{name}={value}" for name, value in result.items()))
        print()
