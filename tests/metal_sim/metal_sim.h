/* The test suite's control over the Metal simulator. Everything here is plain C, for ctypes too.
 *
 * A broken rule of Metal never stops the process: it is written down, and metal_sim_reports()
 * tells. A rule broken by a shader also makes its command buffer fail, as on a GPU. */
#ifndef METAL_SIM_H
#define METAL_SIM_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define METAL_SIM_API __attribute__((visibility("default")))

/* Forgets reports, faults and counts, and sets everything below back to its default. Objects that
 * are alive stay alive and stay counted. */
METAL_SIM_API void metal_sim_reset(void);

/* Every rule broken since the last reset, one line each; "" where none was. Valid until the next
 * call from the same thread. */
METAL_SIM_API const char *metal_sim_reports(void);
METAL_SIM_API size_t metal_sim_report_count(void);

/* Objects alive, devices and all: how many, and a text such as "2 MTLBuffer, 1 NSString" ("" where
 * none is); since the start, or since the count was last set to 0. */
METAL_SIM_API void metal_sim_start_counting_objects(void);
METAL_SIM_API long metal_sim_live_objects(void);
METAL_SIM_API const char *metal_sim_live_objects_text(void);
/* Command buffers that were committed and have not completed. */
METAL_SIM_API size_t metal_sim_in_flight(void);

/* Threads and threadgroups run in ascending (default) or descending order. */
METAL_SIM_API void metal_sim_set_reverse(bool reverse);
/* Run only this many threadgroups of each dispatch: the first, the last and an even spread between.
 * 0 (default) runs all. */
METAL_SIM_API void metal_sim_set_sampled_threadgroups(size_t count);
/* Work is done at waitUntilCompleted, or when status has been read this often (default 3) after the
 * commit; 0 does it within commit. */
METAL_SIM_API void metal_sim_set_status_reads(unsigned reads);
/* CPU time that one dispatch may take (default 20000 ms) before it counts as an endless loop. */
METAL_SIM_API void metal_sim_set_watchdog(unsigned milliseconds);

/* The simulated machine. Family is that of MTLGPUFamilyApple<n> (default 7; 0 is a GPU which is not
 * Apple's). The system's version (default 15.0) answers @available. */
METAL_SIM_API void metal_sim_set_device_present(bool present);
METAL_SIM_API void metal_sim_set_apple_family(int family);
METAL_SIM_API void metal_sim_set_system_version(int major, int minor);
METAL_SIM_API void metal_sim_set_max_buffer_length(size_t bytes);
METAL_SIM_API void metal_sim_set_max_total_threads_per_threadgroup(size_t threads);

/* Fault injection. Calls that Metal may refuse (all that return an object, and commit) are counted
 * from 1 since the last reset or call of this function. The n-th returns nil, with an NSError where
 * it has such a parameter and silent is false; where it is a commit, the command buffer fails. 0:
 * none. */
METAL_SIM_API void metal_sim_fail_call(size_t n, bool silent);
METAL_SIM_API size_t metal_sim_call_count(void);
/* The name of the call that the injected fault hit, "" while none was. */
METAL_SIM_API const char *metal_sim_failed_call(void);

/* A zone of memory that no shader may touch, such as the padding behind a tensor's last byte. */
METAL_SIM_API void metal_sim_forbid(const void *start, size_t length);
/* Memory of which the first `used` bytes may be touched and the rest may not; what was forbidden in
 * it before counts no more. For an allocator whose memory is used again. */
METAL_SIM_API void metal_sim_set_padding(const void *start, size_t used, size_t length);

/* Counts since the last reset, for tests that must know what really ran. */
METAL_SIM_API size_t metal_sim_command_buffers(void); // committed
METAL_SIM_API size_t metal_sim_dispatches(void);
METAL_SIM_API size_t metal_sim_threadgroups(void);
METAL_SIM_API size_t metal_sim_memory_accesses(void);
METAL_SIM_API size_t metal_sim_fast_math_libraries(void);
METAL_SIM_API size_t metal_sim_compilations(void); /* of shaders, not answered by the cache */

/* Where compiled shaders are kept. The default was given when the simulator was built. */
METAL_SIM_API void metal_sim_set_shader_cache(const char *directory);

#ifdef __cplusplus
}
#endif
#endif
