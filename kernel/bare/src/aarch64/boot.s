// From the loader, or from PSCI's CPU_ON, to Rust at EL1 with the MMU on.

.section .boot, "ax", @progbits

// The first CPU: x0 may hold the address of the device tree.
.global start_first
start_first:
    mov x20, x0
    // Boot tables: the lowest 4 GiB in blocks of 1 GiB, at 0 and once more as the direct map. The
    // first GiB has devices, the others memory.
    adrp x1, boot_level0
    adrp x2, boot_level1
    orr x3, x2, #3
    str x3, [x1]
    str x3, [x1, #128 * 8]
    mov x3, #0xc05                  // block, attribute 1, accessed, not global
    str x3, [x2]
    mov x3, #0xf01                  // block, attribute 0, inner shareable, accessed, not global
    mov x4, #0x40000000
    add x5, x3, x4
    str x5, [x2, #8]
    add x5, x5, x4
    str x5, [x2, #16]
    add x5, x5, x4
    str x5, [x2, #24]
    adrp x3, cpu_root
    add x3, x3, :lo12:cpu_root
    adrp x4, boot_stack_end
    adrp x5, first_cpu
    add x5, x5, :lo12:first_cpu
    stp x1, x4, [x3]                // cpu_root, cpu_stack
    str x5, [x3, #16]               // cpu_entry

// Any CPU: on with the tables `cpu_root`, on the stack `cpu_stack`, to `cpu_entry`.
.global start_other
start_other:
    adrp x3, cpu_root
    add x3, x3, :lo12:cpu_root
    ldp x1, x4, [x3]
    ldr x5, [x3, #16]
    mov x6, #0x04ff                 // attribute 0: memory, write-back; 1: device, nGnRE
    msr mair_el1, x6
    // 48 bits of addresses in the lower half, 4 KiB pages, walks through the caches, inner
    // shareable; no upper half; 40 bits of physical addresses.
    ldr x6, =0x200803510
    msr tcr_el1, x6
    msr ttbr0_el1, x1
    tlbi vmalle1
    dsb ish
    isb
    mrs x6, sctlr_el1
    mov x7, #0x1005                 // MMU, data cache, instruction cache
    orr x6, x6, x7
    msr sctlr_el1, x6
    isb
    mov sp, x4
    mov x0, x20
    mov x29, #0
    mov x30, #0
    br x5

.ltorg

// What the next CPU to start gets, on a cache line of its own: it reads it past the caches.
.section .data.boot, "aw", @progbits
.balign 64
.global cpu_root
.global cpu_stack
.global cpu_entry
cpu_root:  .quad 0
cpu_stack: .quad 0
cpu_entry: .quad 0
.balign 64

.section .bss.boot, "aw", @nobits
.balign 4096
boot_level0: .skip 4096
boot_level1: .skip 4096
boot_stack:  .skip 64 * 1024
boot_stack_end:
.text
