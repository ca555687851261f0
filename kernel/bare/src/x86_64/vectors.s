// One stub for each vector, 16 bytes apart: pushes a zero where the CPU pushes no error code, and
// the vector. The registers then lie on the stack as `Registers` has them.

.global vector_stubs
.balign 16
vector_stubs:
.set vector, 0
.rept 48
    .balign 16
    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21)
    .byte 0x6a, 0                   // push 0
    .endif
    .byte 0x6a, vector              // push vector
    jmp save_registers
    .set vector, vector + 1
.endr

save_registers:
    push rax
    push rcx
    push rdx
    push rbx
    push rbp
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    mov rdi, rsp
    mov rbp, rsp
    and rsp, -16                    // as the ABI wants it at a call
    cld
    call {handler}
    mov rsp, rbp
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    pop rax
    add rsp, 16                     // the vector and the error code
    iretq
