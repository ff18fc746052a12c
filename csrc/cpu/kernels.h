// The native kernels: what the CPU device runs in place of the MSL kernels of the same names.

#ifndef MLXOPS_CPU_KERNELS_H
#define MLXOPS_CPU_KERNELS_H

#include "encoder.h"

// Arguments as in shaders/mul_mv_q4_0.metal.
mo_status mo_cpu_mul_mv_q4_0(const mo_dispatch *dispatch);

// Arguments as in shaders/fused_dual_proj_q4_0.metal.
mo_status mo_cpu_fused_dual_proj_q4_0(const mo_dispatch *dispatch);

// Arguments as in shaders/qkv_split.metal.
mo_status mo_cpu_qkv_split(const mo_dispatch *dispatch);

#endif
