// A small pool of threads that share the pieces of one job.
//
// The caller publishes a job, wakes the pool and takes pieces itself. A thread of the pool that
// wakes late finds no pieces left, or no job at all; so the caller waits only for threads that have
// begun a piece, and never for one that the system has not yet run.

#include "cpu/threads.h"
#include "cpu/placement.h"
#include "cpu/thread_count.h"
#include "status.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

// Work below so many steps is quicker on the caller alone: waking a thread takes some 50 us,
// telling one that is awake some 2.
#define WAKING_STEPS 50000
#define SHARED_STEPS 10000

// How long a thread looks out for what it waits for before it sleeps: operations often follow one
// another closely, and one that finds the pool awake need not wake it.
#define SPIN_NANOSECONDS 50000

// Pieces for each thread, so that a thread that runs slower than the others gets fewer of them.
#define PIECES_PER_THREAD 4

typedef struct job {
    void (*work)(void *context, size_t begin, size_t end);
    void *context;
    size_t n;
    size_t pieces;
    atomic_size_t next_piece;
    int places; // how many threads of the pool may still join
} job;

static struct {
    pthread_mutex_t busy; // held by the caller whose job this is
    pthread_mutex_t lock; // guards everything below
    pthread_cond_t new_job;
    pthread_cond_t finished;
    job *current;
    atomic_ulong generation; // of current
    atomic_int n_threads;    // started
    pthread_t threads[MO_MAX_THREADS];
    atomic_int n_active; // inside the current job
    atomic_int n_asleep; // of the started ones
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .new_job = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

// 0: not chosen yet.
static atomic_int num_threads;

int mo_num_threads(void) {
    int n = atomic_load(&num_threads);
    if (n == 0) {
        n = mo_initial_num_threads();
        int unchosen = 0;
        if (!atomic_compare_exchange_strong(&num_threads, &unchosen, n))
            n = unchosen;
    }
    return n;
}

mo_status mo_set_num_threads(int64_t n) {
    if (n < 1)
        return mo_fail(MO_INVALID_VALUE, "%lld threads; at least 1 is needed", (long long)n);
    atomic_store(&num_threads, n < MO_MAX_THREADS ? (int)n : MO_MAX_THREADS);
    return MO_OK;
}

static void run_pieces(job *j) {
    for (;;) {
        const size_t piece = atomic_fetch_add(&j->next_piece, 1);
        if (piece >= j->pieces)
            return;
        // Without n * piece, which could overflow.
        const size_t length = j->n / j->pieces, longer = j->n % j->pieces;
        const size_t begin = piece * length + (piece < longer ? piece : longer);
        j->work(j->context, begin, begin + length + (piece < longer));
    }
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); // (yield is over at once)
#endif
}

static void spin_for_job(unsigned long seen) {
    const int64_t end = nanoseconds() + SPIN_NANOSECONDS;
    while (atomic_load(&pool.generation) == seen && nanoseconds() < end)
        pause_briefly();
}

static void spin_for_others(void) {
    const int64_t end = nanoseconds() + SPIN_NANOSECONDS;
    while (atomic_load(&pool.n_active) > 0 && nanoseconds() < end)
        pause_briefly();
}

static void *run_thread(void *unused) {
    (void)unused;
    fesetenv(FE_DFL_ENV); // not that of the thread which started this one
    unsigned long seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.current || pool.generation == seen) {
            pool.n_asleep++;
            pthread_cond_wait(&pool.new_job, &pool.lock);
            pool.n_asleep--;
        }
        seen = pool.generation;
        job *j = pool.current;
        if (j->places == 0)
            continue;
        j->places--;
        pool.n_active++;
        pthread_mutex_unlock(&pool.lock);
        run_pieces(j);
        pthread_mutex_lock(&pool.lock);
        if (--pool.n_active == 0)
            pthread_cond_signal(&pool.finished);
        pthread_mutex_unlock(&pool.lock);
        spin_for_job(seen);
        pthread_mutex_lock(&pool.lock);
    }
    return NULL;
}

// Starts threads up to n; fewer where the system gives no more. Signals but for crashes
// stay with the threads that the program started itself. Called with pool.lock held.
static void start_threads(int n) {
    if (pool.n_threads >= n)
        return;
    sigset_t all, previous;
    sigfillset(&all);
    // A crash is reported where it happens.
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigdelset(&all, crashes[i]);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    while (pool.n_threads < n &&
           pthread_create(&pool.threads[pool.n_threads], NULL, run_thread, NULL) == 0) {
        pthread_detach(pool.threads[pool.n_threads]);
        pool.n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
}

// Called with pool.busy held.
static void share(job *j, int helpers) {
    pthread_mutex_lock(&pool.lock);
    start_threads(helpers);
    mo_place_beside_caller(pool.threads, helpers < pool.n_threads ? helpers : pool.n_threads);
    j->places = helpers;
    pool.current = j;
    pool.generation++;
    pthread_cond_broadcast(&pool.new_job);
    pthread_mutex_unlock(&pool.lock);

    run_pieces(j);

    pthread_mutex_lock(&pool.lock);
    pool.current = NULL; // no more may join
    pthread_mutex_unlock(&pool.lock);
    spin_for_others();
    pthread_mutex_lock(&pool.lock);
    while (pool.n_active > 0)
        pthread_cond_wait(&pool.finished, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void mo_parallel_for(void (*work)(void *context, size_t begin, size_t end), void *context, size_t n,
                     size_t cost) {
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);

    const size_t threads = (size_t)mo_num_threads();
    const size_t helpers = (threads < n ? threads : n) - 1;
    const bool awake = atomic_load(&pool.n_asleep) < atomic_load(&pool.n_threads);
    const size_t steps = awake ? SHARED_STEPS : WAKING_STEPS;
    const bool small = n <= steps / (cost ? cost : 1);
    // While another caller has the pool, its threads are busy: this one does its work alone.
    if (helpers == 0 || small || pthread_mutex_trylock(&pool.busy) != 0) {
        work(context, 0, n);
    } else {
        const size_t pieces = (helpers + 1) * PIECES_PER_THREAD;
        job j = {.work = work, .context = context, .n = n, .pieces = pieces < n ? pieces : n};
        share(&j, (int)helpers);
        pthread_mutex_unlock(&pool.busy);
    }

    fesetenv(&environment);
}

// The threads of the pool do not exist in a forked child; it starts its own.
static void start_afresh(void) {
    pool.busy = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.new_job = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.finished = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    mo_forget_placement();
    pool.current = NULL;
    pool.n_threads = 0;
    pool.n_active = 0;
    pool.n_asleep = 0;
}

__attribute__((constructor)) static void survive_fork(void) {
    pthread_atfork(NULL, NULL, start_afresh);
}
