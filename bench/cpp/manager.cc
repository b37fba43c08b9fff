// Boost.Fiber in the suite `manager`: fibers of one thread, with the default scheduler (round robin).
//
// Stacks come from a pool, in the default size and without guards. Each function does its work on the
// calling thread, whose main fiber is the loop, and says how long it took and how much was done, which
// the caller checks. `bench/README.md` says why it is done in these ways.

#include <boost/fiber/all.hpp>

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

namespace fibers = boost::fibers;
using Clock = std::chrono::steady_clock;

struct Lap {
    std::uint64_t nanoseconds;
    std::uint64_t done;
};

Lap lap(Clock::time_point start, std::uint64_t done) {
    auto const time = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    return {static_cast<std::uint64_t>(time.count()), done};
}

// Kept from one call to the next, so that its stacks are.
fibers::pooled_fixedsize_stack& stacks() {
    static thread_local fibers::pooled_fixedsize_stack pool;
    return pool;
}

template <typename F>
fibers::fiber start(fibers::launch policy, F&& f) {
    return fibers::fiber(policy, std::allocator_arg, stacks(), std::forward<F>(f));
}

// A signal between fibers of one thread, from what Boost.Fiber gives to those who write schedulers.
class Signal {
public:
    void post() noexcept {
        set_ = true;
        if (auto* waiter = std::exchange(waiter_, nullptr)) {
            fibers::context::active()->schedule(waiter);
        }
    }

    // Takes it back as well.
    void wait() noexcept {
        if (!set_) {
            waiter_ = fibers::context::active();
            waiter_->suspend();
        }
        set_ = false;
    }

private:
    bool set_ = false;
    fibers::context* waiter_ = nullptr;
};

// The same as Boost.Fiber's users would write it.
class Condition {
public:
    void post() {
        std::unique_lock<fibers::mutex> lock(mutex_);
        set_ = true;
        condition_.notify_one();
    }

    void wait() {
        std::unique_lock<fibers::mutex> lock(mutex_);
        while (!set_) {
            condition_.wait(lock);
        }
        set_ = false;
    }

private:
    bool set_ = false;
    fibers::mutex mutex_;
    fibers::condition_variable condition_;
};

template <typename S>
Lap ping_pong(std::uint64_t rounds) {
    S there, back;
    std::uint64_t done = 0;
    auto const begin = Clock::now();
    auto ping = start(fibers::launch::post, [&] {
        for (std::uint64_t round = 0; round < rounds; ++round) {
            there.post();
            back.wait();
        }
    });
    auto pong = start(fibers::launch::post, [&] {
        for (std::uint64_t round = 0; round < rounds; ++round) {
            there.wait();
            ++done;
            back.post();
        }
    });
    ping.join();
    pong.join();
    return lap(begin, done);
}

// How many tasks from another thread have run.
struct alignas(128) Progress {
    std::atomic<std::uint64_t> done{0};

    // Only the thread of the loop writes to it.
    std::uint64_t advance() noexcept {
        auto const now = done.load(std::memory_order_relaxed) + 1;
        done.store(now, std::memory_order_release);
        return now;
    }
};

// Waits until so many have; returns how many. As `load::Remote` does it for the others.
std::uint64_t wait_for(std::uint64_t least, Progress const& progress) {
    for (unsigned tries = 0;; ++tries) {
        auto const done = progress.done.load(std::memory_order_acquire);
        if (done >= least) {
            return done;
        }
        if (tries >= 100) {
            std::this_thread::yield();
            continue;
        }
        for (auto turn = done; turn < least && turn < done + 64; ++turn) {
#if defined(__x86_64__)
            _mm_pause();
#endif
        }
    }
}

template <typename Add>
void add_all(std::uint64_t count, std::uint64_t outstanding, Progress const& progress, Add add) {
    std::uint64_t done = 0;
    for (std::uint64_t number = 0; number < count; ++number) {
        if (number - done >= outstanding) {
            done = wait_for(number - outstanding / 2, progress);
        }
        add();
    }
}

using Tasks = fibers::buffered_channel<Progress*>;

void stay_on(std::size_t processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
}

// How another thread sends tasks.
struct Remote {
    std::uint64_t count;
    std::uint64_t outstanding;
    // The processor of the other thread.
    std::size_t processor;
};

// Runs `take` while another thread sends tasks.
template <typename Take>
Lap run(Remote const& remote, Take take) {
    Progress progress;
    // Its size is a power of two, and one less fits in.
    Tasks tasks(2 * remote.outstanding);
    std::atomic<bool> here{false}, open{false};
    std::thread adder([&] {
        stay_on(remote.processor);
        here.store(true);
        while (!open.load()) {
            std::this_thread::yield();
        }
        add_all(remote.count, remote.outstanding, progress, [&] { tasks.push(&progress); });
    });
    while (!here.load()) {
        std::this_thread::yield();
    }
    auto const begin = Clock::now();
    open.store(true);
    take(tasks, progress);
    auto const result = lap(begin, progress.done.load());
    adder.join();
    return result;
}

}  // namespace

extern "C" {

// Batches of tasks: each a fiber that runs when the loop comes to it, or is dispatched at once.
Lap boost_fiber_tasks(std::uint64_t batches, std::uint64_t batch, bool dispatch) {
    auto const policy = dispatch ? fibers::launch::dispatch : fibers::launch::post;
    std::uint64_t done = 0;
    auto const begin = Clock::now();
    for (std::uint64_t number = 1; number <= batches; ++number) {
        for (std::uint64_t task = 0; task < batch; ++task) {
            start(policy, [&done] { ++done; }).detach();
        }
        while (done < number * batch) {
            boost::this_fiber::yield();
        }
    }
    return lap(begin, done);
}

Lap boost_fiber_signal(std::uint64_t rounds) {
    return ping_pong<Signal>(rounds);
}

Lap boost_fiber_condition(std::uint64_t rounds) {
    return ping_pong<Condition>(rounds);
}

// Tasks from another thread: some fibers receive and run them.
Lap boost_fiber_remote_workers(Remote remote) {
    return run(remote, [count = remote.count](Tasks& tasks, Progress&) {
        std::vector<fibers::fiber> workers;
        for (int number = 0; number < 4; ++number) {
            workers.push_back(start(fibers::launch::post, [&tasks, count] {
                Progress* task;
                while (tasks.pop(task) == fibers::channel_op_status::success) {
                    if (task->advance() == count) {
                        tasks.close();
                    }
                }
            }));
        }
        for (auto& worker : workers) {
            worker.join();
        }
    });
}

// The same with a fiber for each task.
Lap boost_fiber_remote_each(Remote remote) {
    return run(remote, [count = remote.count](Tasks& tasks, Progress& progress) {
        for (std::uint64_t number = 0; number < count; ++number) {
            Progress* task = nullptr;
            tasks.pop(task);
            start(fibers::launch::post, [task] { task->advance(); }).detach();
        }
        while (progress.done.load(std::memory_order_relaxed) < count) {
            boost::this_fiber::yield();
        }
    });
}

// A fiber yields to the main fiber, which does something and yields back.
Lap boost_fiber_yield(std::uint64_t calls) {
    std::uint64_t done = 0;
    std::uint64_t seen = 0;
    bool over = false;
    auto const begin = Clock::now();
    auto caller = start(fibers::launch::post, [&] {
        for (std::uint64_t call = 0; call < calls; ++call) {
            auto const before = done;
            boost::this_fiber::yield();
            seen += done - before;
        }
        over = true;
    });
    // The fiber comes to its first call.
    boost::this_fiber::yield();
    while (!over) {
        ++done;
        boost::this_fiber::yield();
    }
    caller.join();
    return lap(begin, seen == done ? seen : 0);
}

}
