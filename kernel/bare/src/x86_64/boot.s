// From the boot protocols to 64-bit Rust: the first CPU by PVH, the others by a start-up IPI.

// Tells the loader the 32-bit entry point: XEN_ELFNOTE_PHYS32_ENTRY.
.section .note.pvh, "a", @note
.balign 4
.long 4, 4, 18
.asciz "Xen"
.long start32

.section .boot, "ax", @progbits

// The first CPU: protected mode, no paging, ebx points to the start_info.
.code32
.global start32
start32:
    cld
    mov edi, ebx
    // Boot tables: the lowest 4 GiB in pages of 2 MiB, at 0 and once more as the direct map.
    mov eax, offset boot_pdpt + 3
    mov dword ptr [boot_pml4], eax
    mov dword ptr [boot_pml4 + 128 * 8], eax
    xor ecx, ecx
1:  mov eax, ecx
    shl eax, 12
    add eax, offset boot_pd + 3
    mov dword ptr [boot_pdpt + ecx * 8], eax
    inc ecx
    cmp ecx, 4
    jne 1b
    xor ecx, ecx
2:  mov eax, ecx
    shl eax, 21
    or eax, 0x83
    mov dword ptr [boot_pd + ecx * 8], eax
    inc ecx
    cmp ecx, 2048
    jne 2b
    mov eax, offset boot_pml4
    mov dword ptr [cpu_root], eax
    mov dword ptr [cpu_stack], offset boot_stack_end
    mov dword ptr [cpu_entry], offset first_cpu

// Any CPU, in protected mode: to long mode with the tables `cpu_root`, then to `cpu_entry` on the
// stack `cpu_stack`, with edi as its argument.
long_mode:
    mov eax, dword ptr [cpu_root]
    mov cr3, eax
    mov eax, cr4
    or eax, 0x20                    // PAE
    mov cr4, eax
    mov ecx, 0xc0000080             // EFER
    rdmsr
    or eax, 0x900                   // LME, NXE
    wrmsr
    mov eax, cr0
    or eax, 0x80010001              // PG, WP, PE
    mov cr0, eax
    lgdt [gdt_pointer]
    // A far jump to 0x08:start64, which this assembler's Intel syntax cannot say.
    .byte 0xea
    .long start64
    .word 0x08

.code64
start64:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov fs, ax
    mov gs, ax
    mov rsp, qword ptr [cpu_stack]
    mov edi, edi                    // clears the upper half
    xor ebp, ebp
    call qword ptr [cpu_entry]
    ud2

// Copied to a frame below 1 MiB, where another CPU begins in real mode, at offset 0 of its segment.
.code16
.global trampoline
trampoline:
    cli
    mov ax, cs
    mov ds, ax
    // lgdt [trampoline_gdt - trampoline]
    .byte 0x66, 0x0f, 0x01, 0x16
    .word trampoline_gdt - trampoline
    mov eax, cr0
    or al, 1
    mov cr0, eax
    // A far jump to 0x18:start_other
    .byte 0x66, 0xea
    .long start_other
    .word 0x18
.balign 4
trampoline_gdt:
    .word gdt_end - gdt - 1
    .long gdt
.global trampoline_end
trampoline_end:

.code32
start_other:
    mov ax, 0x10
    mov ds, ax
    mov ss, ax
    xor edi, edi
    jmp long_mode

.code64
.section .rodata.boot, "a", @progbits
.balign 16
gdt:
    .quad 0
    .quad 0x00af9a000000ffff        // 08: 64-bit code
    .quad 0x00cf92000000ffff        // 10: data
    .quad 0x00cf9a000000ffff        // 18: 32-bit code
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .quad gdt

// What the next CPU to start gets.
.section .data.boot, "aw", @progbits
.balign 8
.global cpu_root
.global cpu_stack
.global cpu_entry
cpu_root:  .quad 0
cpu_stack: .quad 0
cpu_entry: .quad 0

.section .bss.boot, "aw", @nobits
.balign 4096
boot_pml4:  .skip 4096
boot_pdpt:  .skip 4096
boot_pd:    .skip 4 * 4096
boot_stack: .skip 64 * 1024
boot_stack_end:
.text
