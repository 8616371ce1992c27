// SPDX-License-Identifier: MIT
// mm_loop.hpp compiles as C++14 with all warnings. A chain of layers, whose steps are lambdas, gives the same sum under
// each policy; exceptions give the iteration up.
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include <setjmp.h>

extern "C" {
#include <cmocka.h>
}

#include "mm/mm_loop.hpp"

enum { LAYERS = 8, N = 400, ARENA = 1 << 20 };

namespace {

mm_manager *manager(const char *policy) {
    mm_options options = {};
    mm_manager *m = nullptr;
    options.device_bytes = options.pinned_bytes = ARENA;
    options.policy = policy;
    options.self_check = true;
    assert_int_equal(mm_manager_create(&options, &m), MM_OK);
    return m;
}

void forward(const float *x, float *y, int l) {
    for (int i = 0; i < N; i++) y[i] = x[i] * 0.9F + float((i + l) % 7);
}

// One iteration; returns the sum of the input's gradient. at_layer: where the forward lambda throws when it is called
// the `nth` time.
struct chain {
    mm::loop loop;
    float *loss = nullptr;
    int calls[LAYERS] = {}, throws_at = -1, throws_nth = 0;

    explicit chain(mm_manager *m) : loop(m) {}

    void block(int l, const float *x, float *y) {
        if (++calls[l] == throws_nth && l == throws_at) throw std::runtime_error("a lambda threw");
        forward(x, y, l);
    }

    float iterate() {
        float sum = 0;
        loop.iterate(7, [&] {
            sum = 0;
            loop.step(
                "input", 0, [](float *x) { std::memset(x, 0, N * sizeof *x); }, mm::write<float>("x", 0, N));
            for (int l = 0; l < LAYERS; l++)
                loop.step(
                    mm::at("block", l, MM_FORWARD, MM_LAYER_LINEAR),
                    [this, l](const float *x, float *y) { block(l, x, y); }, mm::read<float>("x", l),
                    mm::write<float>("x", l + 1, N));
            loop.once(
                mm::at("loss", 0, MM_FORWARD, MM_LAYER_LOSS),
                [](const float *x, float *dx, float *loss) {
                    for (int i = 0; i < N; i++) dx[i] += x[i], loss[i] = -x[i];
                },
                mm::read<float>("x", LAYERS), mm::add<float>("dx", LAYERS, N), mm::result<float>("loss", 0, N, &loss));
            for (int l = LAYERS - 1; l >= 0; l--)
                loop.step(
                    mm::at("block", l, MM_BACKWARD),
                    [](const float *x, const float *dy, float *dx, float *tmp) {
                        for (int i = 0; i < N; i++) tmp[i] = x[i] * dy[i];
                        for (int i = 0; i < N; i++) dx[i] += tmp[i] * 0.01F + dy[i];
                    },
                    mm::read<float>("x", l), mm::read<float>("dx", l + 1), mm::add<float>("dx", l, N),
                    mm::scratch<float>(N));
            loop.once(
                mm::at("sum", 0, MM_BACKWARD),
                [&](const float *dx, const float *loss) {
                    for (int i = 0; i < N; i++) sum += dx[i] + loss[i];
                },
                mm::read<float>("dx", 0), mm::read<float>("loss", 0));
        });
        assert_non_null(loss);
        return sum + loss[3];
    }
};

void lambdas_give_the_same_sum_under_each_policy(void **) {
    static const char *const policies[] = {"naive", "liveness", "recompute:mode=sqrt,when=always",
                                           "swap-async:when=always", "recompute-swap:when=always"};
    float wanted = 0;
    int calls = 0;
    for (const char *policy : policies) {
        mm_manager *m = manager(policy);
        {
            chain c(m);
            for (int i = 0; i < 3; i++) {
                const float sum = c.iterate();
                if (wanted == 0) wanted = sum;
                assert_memory_equal(&sum, &wanted, sizeof sum);
            }
            calls = c.calls[3] > calls ? c.calls[3] : calls;
        }
        mm_manager_destroy(m);
    }
    assert_true(calls > 3);
}

void an_exception_gives_the_iteration_up_wherever_the_lambda_is_called(void **) {
    mm_manager *m = manager("recompute:mode=sqrt,when=always");
    {
        chain c(m);
        const float wanted = c.iterate();
        for (int l = 0; l < LAYERS; l++) {
            // The first time, and, where the layer is computed again, the second time.
            for (int nth = 1; nth <= 2; nth++) {
                const bool again = c.calls[l] >= 2;
                std::memset(c.calls, 0, sizeof c.calls);
                c.throws_at = l;
                c.throws_nth = nth;
                std::string told;
                try {
                    c.iterate();
                } catch (const std::runtime_error &e) {
                    told = e.what();
                }
                if (nth == 1 || again) assert_string_equal(told.c_str(), "a lambda threw");
                c.throws_at = -1;
                std::memset(c.calls, 0, sizeof c.calls);
                assert_true(c.iterate() == wanted);
            }
        }
    }
    mm_manager_destroy(m);
}

void failures_are_thrown_with_their_message(void **) {
    mm_manager *m = manager("liveness");
    {
        mm::loop loop(m);
        mm_status status = MM_OK;
        std::string told;
        try {
            loop.iterate(0, [&] {
                loop.step(
                    "use", 4, [](const float *) {}, mm::read<float>("x", 4));
            });
        } catch (const mm::error &e) {
            status = e.status();
            told = e.what();
        }
        assert_int_equal(status, MM_ERR_INVALID);
        assert_true(told.find("use.4 forward reads x.4") != std::string::npos);
        bool threw = false;
        mm_loop_options options = {};
        options.stream = &loop;
        try {
            mm::loop other(m, options);
        } catch (const mm::error &) {
            threw = true;
        }
        assert_true(threw);
    }
    mm_manager_destroy(m);
}

void a_first_add_may_equal_another_slot(void **) {
    mm_manager *m = manager("liveness");
    {
        mm::loop loop(m);
        bool given = false, same = false;
        loop.iterate(0, [&] {
            loop.step(
                mm::at("make", 0, MM_BACKWARD), [](float *dy) { std::memset(dy, 0, N * sizeof *dy); },
                mm::write<float>("dy", 0, N));
            loop.step(
                mm::at("split", 0, MM_BACKWARD),
                [&](const float *dy, float *dx) {
                    given = loop.given(1);
                    same = dx == dy;
                },
                mm::read<float>("dy", 0), mm::add<float>("dx", 0, N).over(0));
            loop.step(
                mm::at("use", 0, MM_BACKWARD), [](const float *, const float *) {}, mm::read<float>("dy", 0),
                mm::read<float>("dx", 0));
        });
        assert_true(given && same);
    }
    mm_manager_destroy(m);
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lambdas_give_the_same_sum_under_each_policy),
        cmocka_unit_test(an_exception_gives_the_iteration_up_wherever_the_lambda_is_called),
        cmocka_unit_test(failures_are_thrown_with_their_message),
        cmocka_unit_test(a_first_add_may_equal_another_slot),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
