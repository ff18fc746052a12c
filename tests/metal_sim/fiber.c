/* The parts that differ between processors. */
#include "fiber.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

__asm__(".text\n"
        ".globl sim_fiber_switch\n"
        ".hidden sim_fiber_switch\n"
        ".type sim_fiber_switch, @function\n"
        "sim_fiber_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size sim_fiber_switch, .-sim_fiber_switch\n");

void *sim_fiber_prepare(void *top, void (*entry)(void)) {
    void **stack = top;
    *--stack = NULL; /* entry's return address, which also aligns the stack for it */
    *--stack = (void *)(uintptr_t)entry;
    for (int i = 0; i < 6; i++)
        *--stack = NULL;
    return stack;
}

unsigned long sim_fp_begin(int flush_subnormals) {
    unsigned old = _mm_getcsr();
    _mm_setcsr(flush_subnormals ? 0x9FC0 : 0x1F80);
    return old;
}

void sim_fp_restore(unsigned long state) {
    _mm_setcsr((unsigned)state);
}

#elif defined(__aarch64__)

__asm__(".text\n"
        ".globl sim_fiber_switch\n"
        ".hidden sim_fiber_switch\n"
        ".type sim_fiber_switch, %function\n"
        "sim_fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size sim_fiber_switch, .-sim_fiber_switch\n");

void *sim_fiber_prepare(void *top, void (*entry)(void)) {
    void **stack = (void **)top - 20;
    memset(stack, 0, 160);
    stack[11] = (void *)(uintptr_t)entry; /* x30, the link register */
    return stack;
}

unsigned long sim_fp_begin(int flush_subnormals) {
    unsigned long old, wanted = flush_subnormals ? 1ul << 24 : 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(wanted));
    return old;
}

void sim_fp_restore(unsigned long state) {
    __asm__ volatile("msr fpcr, %0" : : "r"(state));
}

#else
#error "The Metal simulator knows x86-64 and AArch64. Others need a sim_fiber_switch in fiber.c."
#endif
