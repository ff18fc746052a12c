// A small pool of threads that share the pieces of one job.
//
// The caller publishes a job, wakes the pool and takes pieces itself. A thread of the pool that
// wakes late finds no pieces left, or no job at all; so the caller waits only for threads that have
// begun a piece, and never for one that the system has not yet run.
//
// Each thread has a range of neighbouring pieces, so that it walks through memory without jumps,
// and helps the others when it has done its own.

#include "cpu/threads.h"
#include "cpu/clock.h"
#include "cpu/interrupt.h"
#include "cpu/placement.h"
#include "cpu/thread_count.h"
#include "status.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

// Work below so many steps is quicker on the caller alone: waking a thread takes some 50 us,
// telling one that is awake some 2. Work that follows closely upon other work wakes them early:
// there will be more.
#define WAKING_STEPS 50000
#define SHARED_STEPS 10000

// How long a thread looks out for what it waits for before it sleeps: operations often follow one
// another closely, and one that finds the pool awake need not wake it.
#define SPIN_NANOSECONDS 50000

// Pieces for each thread, so that a thread that runs slower than the others can be helped.
#define PIECES_PER_THREAD 4

// No piece has more steps, if it can be divided: an interrupt waits for it. (A step may well last
// ten times as long as it should, where memory has to be fetched from the system first.)
#define PIECE_STEPS 4000000

// Neighbouring pieces, taken in order.
typedef struct range {
    _Alignas(64) atomic_size_t next; // alone in its cache line
    size_t end;
} range;

typedef struct job {
    void (*work)(void *context, size_t begin, size_t end);
    void *context;
    size_t n;
    size_t pieces;
    range *ranges;
    size_t n_ranges; // one for each thread
    size_t joined;   // threads, the caller included
    bool shared;
    unsigned long process; // that shares it, as in forks
    atomic_bool interrupted;
} job;

static struct {
    pthread_mutex_t busy; // held by the caller whose job this is
    pthread_mutex_t lock; // guards everything below; what is atomic is also read without it
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

// How many forks lie between this process and the one that loaded the library.
static atomic_ulong forks;

// When work that was worth telling a thread of ended last.
static _Atomic int64_t last_end;

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

// Where part i begins if n are divided into parts that differ by one at most.
static size_t begin_of(size_t i, size_t parts, size_t n) {
    const size_t length = n / parts, longer = n % parts; // without n * i, which could overflow
    return i * length + (i < longer ? i : longer);
}

static size_t count_pieces(size_t n, size_t cost, size_t threads) {
    const size_t longest = cost < PIECE_STEPS ? PIECE_STEPS / cost : 1;
    const size_t fewest = (n - 1) / longest + 1;
    const size_t wanted = threads > 1 ? threads * PIECES_PER_THREAD : 1;
    return fewest > wanted ? fewest : wanted < n ? wanted : n;
}

static void divide(job *j, range *ranges, size_t n_ranges) {
    j->ranges = ranges;
    j->n_ranges = n_ranges;
    for (size_t i = 0; i < n_ranges; i++) {
        atomic_store(&ranges[i].next, begin_of(i, n_ranges, j->pieces));
        ranges[i].end = begin_of(i + 1, n_ranges, j->pieces);
    }
}

// Whether this is a child that the interrupt check forked, and the job its parent's: what other
// threads had begun stayed with them.
static bool is_left_behind(const job *j) {
    return j->shared && atomic_load(&forks) != j->process;
}

// For the caller's thread.
static void poll_interrupt(job *j) {
    if (!atomic_load(&j->interrupted) && mo_poll_interrupt())
        atomic_store(&j->interrupted, true);
}

// Until none are left: the pieces of a thread's own range, then those of others.
static void run_pieces(job *j, size_t own, bool is_caller) {
    for (size_t i = 0; i < j->n_ranges; i++) {
        range *r = &j->ranges[(own + i) % j->n_ranges];
        while (!atomic_load(&j->interrupted) && !is_left_behind(j)) {
            const size_t piece = atomic_fetch_add(&r->next, 1);
            if (piece >= r->end)
                break;
            j->work(j->context, begin_of(piece, j->pieces, j->n),
                    begin_of(piece + 1, j->pieces, j->n));
            if (is_caller)
                poll_interrupt(j);
        }
    }
}

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); // (yield is over at once)
#endif
}

static void spin_for_job(unsigned long seen) {
    const int64_t end = mo_nanoseconds() + SPIN_NANOSECONDS;
    while (atomic_load(&pool.generation) == seen && mo_nanoseconds() < end)
        pause_briefly();
}

static void spin_for_others(void) {
    const int64_t end = mo_nanoseconds() + SPIN_NANOSECONDS;
    while (atomic_load(&pool.n_active) > 0 && mo_nanoseconds() < end)
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
        if (j->joined == j->n_ranges)
            continue;
        const size_t own = j->joined++;
        pool.n_active++;
        pthread_mutex_unlock(&pool.lock);
        run_pieces(j, own, false);
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

static void run_alone(job *j) {
    range whole;
    j->shared = false;
    divide(j, &whole, 1);
    run_pieces(j, 0, true);
}

static void wait_for_others(job *j) {
    spin_for_others();
    pthread_mutex_lock(&pool.lock);
    while (pool.n_active > 0) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += MO_INTERRUPT_NANOSECONDS;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&pool.finished, &pool.lock, &soon) == ETIMEDOUT) {
            pthread_mutex_unlock(&pool.lock);
            poll_interrupt(j);
            if (is_left_behind(j))
                return;
            pthread_mutex_lock(&pool.lock);
        }
    }
    pthread_mutex_unlock(&pool.lock);
}

// Called with pool.busy held, which it releases.
static void share(job *j, size_t threads) {
    range ranges[MO_MAX_THREADS];
    const int helpers = (int)threads - 1;
    divide(j, ranges, threads);
    j->joined = 1;
    j->shared = true;
    j->process = atomic_load(&forks);
    pthread_mutex_lock(&pool.lock);
    start_threads(helpers);
    mo_place_beside_caller(pool.threads, pool.n_threads);
    pool.current = j;
    pool.generation++;
    for (int i = 0; i < helpers; i++)
        pthread_cond_signal(&pool.new_job);
    pthread_mutex_unlock(&pool.lock);

    run_pieces(j, 0, true);

    if (!is_left_behind(j)) {
        pthread_mutex_lock(&pool.lock);
        pool.current = NULL; // no more may join
        pthread_mutex_unlock(&pool.lock);
        wait_for_others(j);
    }
    if (is_left_behind(j))
        run_alone(j);
    else
        pthread_mutex_unlock(&pool.busy);
}

static bool is_small(size_t n, size_t cost) {
    if (n <= SHARED_STEPS / cost)
        return true;
    return n <= WAKING_STEPS / cost &&
           atomic_load(&pool.n_asleep) == atomic_load(&pool.n_threads) &&
           mo_nanoseconds() - atomic_load(&last_end) > SPIN_NANOSECONDS;
}

mo_status mo_parallel_for(void (*work)(void *context, size_t begin, size_t end), void *context,
                          size_t n, size_t cost) {
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);

    cost = cost ? cost : 1;
    const size_t most = (size_t)mo_num_threads(), threads = most < n ? most : n;
    job j = {.work = work, .context = context, .n = n};
    if (is_small(n, cost)) {
        work(context, 0, n);
        poll_interrupt(&j); // there may be much small work
    } else {
        j.pieces = count_pieces(n, cost, threads);
        // While another caller has the pool, its threads are busy: this one does its work alone. So
        // it does where there is no other processor for them.
        if (threads == 1 || !mo_may_run_beside_caller() || pthread_mutex_trylock(&pool.busy) != 0)
            run_alone(&j);
        else
            share(&j, threads);
    }

    if (n > SHARED_STEPS / cost)
        atomic_store(&last_end, mo_nanoseconds());
    fesetenv(&environment);
    return atomic_load(&j.interrupted) ? mo_fail(MO_INTERRUPTED, "interrupted") : MO_OK;
}

// The threads of the pool do not exist in a forked child; it starts its own.
static void start_afresh(void) {
    atomic_fetch_add(&forks, 1);
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
