"""How often locks were taken in a run, and how long Linux's were held: these from /proc/lock_stat,
Freehold's from its stat.

For boot, with a kernel of build --config kernel/linux/vmlinux/config.lockstat.
"""

import re

# The guest prints all counts ahead of a run and behind it.
SHELL = r"""
counts() {
    echo "freehold: counts $*"
    grep -E '^pgalloc_' /proc/vmstat
    grep -E '&(zone->lock|pcp->lock|lruvec->lru_lock):' /proc/lock_stat
    grep -E '_(taken|waited|missed) ' $files/stat
    echo "freehold: counted"
}
"""

# Freehold's names, by the names of lock_stat for the locks that do the same.
LINUX = {"zone->lock": "zone_lock", "pcp->lock": "pcp_lock", "lruvec->lru_lock": "lru_lock"}
NUMBERED = re.compile(r"^(\S+) (\d+)$")
# How often it was waited for and taken, and for how many microseconds it was held in all.
CLASS = re.compile(
    r"&(\S+):\s+\d+\s+(\d+)(?:\s+[\d.]+){5}\s+(\d+)(?:\s+[\d.]+){2}\s+([\d.]+)"
)


def around(word, line):
    """A run, with all that is counted before and after it."""
    return f"echo 0 > /proc/lock_stat\ncounts before {word}\n{line}\ncounts after {word}"


def read(lines):
    """The counts of each print, in order: whether it was before or after which run, and these."""
    found, counts = [], None
    for line in lines:
        if match := re.search(r"freehold: counts (before|after) (\S+)", line):
            counts = {}
            found.append((match[1], match[2], counts))
        elif "freehold: counted" in line:
            counts = None
        elif counts is None:
            continue
        elif match := NUMBERED.match(line.strip()):
            name = "pages" if match[1].startswith("pgalloc_") else match[1]
            counts[name] = counts.get(name, 0) + int(match[2])
        elif match := CLASS.search(line):
            lock = LINUX[match[1]]
            for what, many in zip(("waited", "taken", "held"), match.groups()[1:]):
                counts[f"{lock}_{what}"] = counts.get(f"{lock}_{what}", 0) + float(many)
    return found


def results_of(lines):
    """A result for each run and lock: how often it was taken, and how often for 1000 pages; and for
    how many nanoseconds it was held for a page, where that is known."""
    before, results = {}, []
    for when, word, counts in read(lines):
        if when == "before":
            before = counts
            continue
        delta = {name: many - before.get(name, 0) for name, many in counts.items()}
        for name in delta:
            lock, _, what = name.rpartition("_")
            if what == "taken" and delta[name]:
                taken, pages = int(delta[name]), delta["pages"]
                held = delta.get(f"{lock}_held", 0) * 1000 / pages
                results.append({
                    "run": "locks", "load": word, "pages": str(pages), "lock": lock,
                    "per_1000_pages": f"{taken * 1000 / pages:.1f}", "taken": str(taken),
                    "held_ns_per_page": f"{held:.1f}",
                    "waited": str(int(delta.get(f"{lock}_waited", 0))),
                    "missed": str(delta.get(f"{lock}_missed", 0)),
                })
    return results
