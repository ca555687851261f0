#!/bin/bash
# A service in Debian's userspace: runs what boot asks for, in /root/freehold/runs, and says on the
# kernel's log what came of it, a line a test: passed, failed, skipped, or out of time.
cd /root/freehold || exit
failed=0
say() { echo "freehold: $*" >/dev/kmsg; }
failing() { say "error: $*" && failed=1; }

# A test of a suite: one NAME LIMIT COMMAND...
one() {
    local name=$1 limit=$2 status verdict
    shift 2
    timeout -k 5 "$limit" "$@" >said 2>&1 </dev/null
    status=$?
    case $status in
    0) verdict=passed ;;
    # Of stress-ng, of the kernel's tests, and of LTP: not on this machine.
    3 | 4 | 32) verdict=skipped ;;
    124 | 137) verdict=endless ;;
    *) verdict=failed ;;
    esac
    ! grep -q 'No stress workers invoked' said || verdict=skipped
    verdicts+=("$verdict")
    say "case: $run $name $verdict $status"
    [ $verdict = passed ] ||
        grep -vE '^ok|stress-ng: info|Totals|^Summary:|^[a-z]+ +[0-9]+$|^$' said |
            tail -4 | cut -c1-150 | while read -r line; do say "said: $line"; done
}

sum_up() {
    say "result: run=$run" "$(printf '%s\n' "${verdicts[@]}" | sort | uniq -c |
        awk '{ printf "cases_%s=%d ", $2, $1 }')"
}

install() {
    apt-get install -y ../packages/*.deb >said 2>&1 && [ "$(lua5.4 -e 'print(6 * 7)')" = 42 ] ||
        failing "$(tail -3 said)"
    say "result: run=$run packages=$(dpkg -l | grep -c ^ii)"
}

# A thousand functions, two compilations at a time, and what the program says of itself.
compile() {
    local many=1000 sum
    for part in 0 1; do
        awk -v part=$part -v many=$many 'BEGIN {
            for (i = 0; i < many; i++)
                printf "unsigned f%d_%d(unsigned x) { for (unsigned i = 0; i < %d; i++) { " \
                    "if (x %% %d == i) x = x * %d + i; else x ^= x >> %d; } return x; }\n",
                    part, i, i % 7 + 2, i % 11 + 2, i * 2 + 1, i % 5 + 1
            printf "unsigned g%d(unsigned x) {\n", part
            for (i = 0; i < many; i++) printf "x = f%d_%d(x);\n", part, i
            print "return x; }"
        }' >part$part.c
        gcc -O2 -c part$part.c & jobs[part]=$!
    done
    wait "${jobs[0]}" && wait "${jobs[1]}" || failing gcc
    echo 'int printf(const char *, ...); unsigned g0(unsigned), g1(unsigned);
        int main(void) { printf("%u\n", g1(g0(1))); return 0; }' >main.c
    gcc -O2 -o whole main.c part0.o part1.o || failing "gcc: main"
    sum=$(./whole)
    gcc -O0 -o plain main.c part0.c part1.c && [ "$sum" = "$(./plain)" ] || failing "sum $sum"
    say "result: run=$run functions=$((2 * many)) sum=$sum"
}

stress() {
    local name verdicts=()
    # Without those that only end by being killed or need a disk of their own.
    for name in $(stress-ng --class 'vm?' | sed 's/.*://'); do
        one "$name" 60 stress-ng --oomable --verify "--$name" 2 -t 5
    done
    sum_up
}

selftests() {
    local name verdicts=()
    cd /root/selftests || return
    echo 160 >/proc/sys/vm/nr_hugepages
    while read -r name; do
        # shellcheck disable=SC2086 # words
        [ ! -x "${name%% *}" ] || one "${name// /_}" 150 ./$name
    done <<'TESTS'
hugepage-mmap
hugepage-shm
map_hugetlb
hugepage-mremap
hugepage-vmemmap
hugetlb-madvise
hugetlb_dio
hugetlb_fault_after_madv
hugetlb_madv_vs_map
hugetlb-soft-offline
hugetlb-read-hwpoison
map_fixed_noreplace
map_populate
gup_longterm
uffd-unit-tests
uffd-stress anon 20 4
uffd-stress hugetlb 16 4
uffd-stress shmem 20 4
compaction_test
on-fault-limit
mlock-random-test
mlock2-tests
mrelease_test
mremap_test
mremap_dontunmap
thuge-gen
madv_populate
memfd_secret
ksm_tests -M -p 10
ksm_tests -U
ksm_tests -Z -p 10 -z 0
ksm_tests -N -m 1
ksm_functional_tests
protection_keys_64
soft-dirty
pagemap_ioctl
cow
khugepaged
transhuge-stress -d 20
split_huge_page_test
migration
mkdirty
mdwe_test
mseal_test
droppable
TESTS
    cd - >/dev/null || return
    echo 0 >/proc/sys/vm/nr_hugepages
    sum_up
}

# The lists of LTP, in which a line is a name and what the shell is to run.
ltp() {
    local name command verdicts=() suite=/opt/ltp
    [ -d $suite ] || { failing "no LTP: run userspace --ltp DIR" && return; }
    local -x LTPROOT=$suite PATH=$PATH:$suite/testcases/bin TMPDIR=/tmp KCONFIG_PATH=/root/config
    # CPUs that QEMU translates are slow.
    local -x LTP_TIMEOUT_MUL=5
    while read -r name command; do
        one "$name" 150 bash -c "$command"
    done < <(cat $suite/runtest/mm $suite/runtest/hugetlb | grep -v '^ *#' | grep .)
    sum_up
}

say "stat: userspace $(systemctl is-system-running --wait), $(. /etc/os-release; echo "$PRETTY_NAME")"
for run in $(cat runs); do
    say "runs $run"
    "${run#*:}"
done
files=/sys/kernel/debug/freehold
while read -r line; do say "stat $line"; done <$files/stat
cat $files/validate >said 2>&1 || failing validate
say "exit $failed"
sleep 1
poweroff -f
