// The vectors of EL1: 16 of 128 bytes, by where the exception comes from and its kind. The
// registers then lie on the stack as `Registers` has them.

.balign 2048
.global vector_table
vector_table:
.set vector, 0
.rept 16
    .balign 128
    sub sp, sp, #272
    stp x0, x1, [sp]
    mov x1, #vector
    b save_registers
    .set vector, vector + 1
.endr

save_registers:
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x2, elr_el1
    stp x30, x2, [sp, #240]
    mrs x3, spsr_el1
    str x3, [sp, #256]
    mov x0, sp
    bl {handler}
    ldr x3, [sp, #256]
    msr spsr_el1, x3
    ldp x30, x2, [sp, #240]
    msr elr_el1, x2
    ldp x28, x29, [sp, #224]
    ldp x26, x27, [sp, #208]
    ldp x24, x25, [sp, #192]
    ldp x22, x23, [sp, #176]
    ldp x20, x21, [sp, #160]
    ldp x18, x19, [sp, #144]
    ldp x16, x17, [sp, #128]
    ldp x14, x15, [sp, #112]
    ldp x12, x13, [sp, #96]
    ldp x10, x11, [sp, #80]
    ldp x8, x9, [sp, #64]
    ldp x6, x7, [sp, #48]
    ldp x4, x5, [sp, #32]
    ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp]
    add sp, sp, #272
    eret
