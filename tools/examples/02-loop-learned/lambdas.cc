// SPDX-License-Identifier: MIT
// A learned loop in C++ (mm_loop.hpp): each step is a lambda, which gets its tensors as arguments. It trains a residual
// network; the weights are the plain loop's, bit for bit. Failures are exceptions.
//
//     c++ -std=c++14 lambdas.cc $(pkg-config --cflags --libs mm) -o lambdas && ./lambdas
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "mm/mm_loop.hpp"

namespace {

constexpr int depth = 12, batch = 64, width = 16, n = batch * width, steps = 10;
enum key { training, evaluation };
using matrix = std::array<float, width * width>;

std::array<matrix, depth> weight, gradient;
std::array<float, n> images, targets;

// ---- kernels. Gradients with respect to maps are added up, in memory that was zero.

// out = r + tanh(r w)
void block(const float *r, const matrix &w, float *out) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int c = 0; c < width; c++) sum += r[i / width * width + c] * w[c * width + i % width];
        out[i] = r[i] + std::tanh(sum);
    }
}

// dz is scratch.
void block_back(const float *r, const matrix &w, const float *d_out, float *d_r, float *dz, matrix &g) {
    g.fill(0);
    block(r, w, dz);
    for (int i = 0; i < n; i++) dz[i] = d_out[i] * (1 - (dz[i] - r[i]) * (dz[i] - r[i]));
    for (int i = 0; i < n; i++) {
        d_r[i] += d_out[i];
        for (int c = 0, row = i / width * width, o = i % width; c < width; c++) {
            g[c * width + o] += r[row + c] * dz[i];
            d_r[row + c] += w[c * width + o] * dz[i];
        }
    }
}

float squared_error(const float *r) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += (r[i] - targets[i]) * (r[i] - targets[i]) / n;
    return sum;
}

void squared_error_back(const float *r, float *d_r) {
    for (int i = 0; i < n; i++) d_r[i] += 2 * (r[i] - targets[i]) / n;
}

void update() {
    for (int l = 0; l < depth; l++)
        for (int i = 0; i < width * width; i++) weight[l][i] -= 0.3F * gradient[l][i];
}

void set_up() {
    for (int i = 0; i < depth * width * width; i++)
        weight[i / (width * width)][i % (width * width)] = std::sin(float(i % 1543 * i % 7919)) * 0.1F;
    for (int i = 0; i < n; i++) images[i] = std::sin(float(3 * i)), targets[i] = std::cos(float(i % width)) / 2;
}

// ---- the plain loop

void iterate_plain() {
    using map = std::vector<float>;
    std::vector<map> r(depth + 1, map(n)), d(depth + 1, map(n));
    map dz(n);
    std::copy(images.begin(), images.end(), r[0].begin());
    for (int l = 0; l < depth; l++) block(r[l].data(), weight[l], r[l + 1].data());
    squared_error_back(r[depth].data(), d[depth].data());
    for (int l = depth - 1; l >= 0; l--)
        block_back(r[l].data(), weight[l], d[l + 1].data(), d[l].data(), dz.data(), gradient[l]);
    update();
}

// ---- the same loop inside a budget

// The forward pass of both keys. Its lambdas may be called again in the backward pass.
void forward(mm::loop &loop) {
    loop.step(
        "images", 0, [](float *r) { std::copy(images.begin(), images.end(), r); }, mm::write<float>("r", 0, n));
    for (int l = 0; l < depth; l++)
        loop.step(
            mm::at("block", l, MM_FORWARD, MM_LAYER_LINEAR),
            [l](const float *r, float *out) { block(r, weight[l], out); }, mm::read<float>("r", l),
            mm::write<float>("r", l + 1, n));
}

void iterate(mm::loop &loop) {
    loop.iterate(training, [&] {
        forward(loop);
        loop.once(
            mm::at("error", 0, MM_BACKWARD, MM_LAYER_LOSS),
            [](const float *r, float *d_r) { squared_error_back(r, d_r); }, mm::read<float>("r", depth),
            mm::add<float>("d_r", depth, n));
        for (int l = depth - 1; l >= 0; l--)
            loop.once(
                mm::at("block", l, MM_BACKWARD),
                [l](const float *r, const float *d_out, float *d_r, float *dz) {
                    block_back(r, weight[l], d_out, d_r, dz, gradient[l]);
                },
                mm::read<float>("r", l), mm::read<float>("d_r", l + 1), mm::add<float>("d_r", l, n),
                mm::scratch<float>(n));
    });
    update(); // outside: what stands between the steps runs twice when a key is new
}

// An order of its own, so another key. A result stays readable behind the iteration.
float evaluate(mm::loop &loop) {
    float *error = nullptr;
    loop.iterate(evaluation, [&] {
        forward(loop);
        loop.once(
            mm::at("error", 0, MM_FORWARD, MM_LAYER_LOSS),
            [](const float *r, float *result) { *result = squared_error(r); }, mm::read<float>("r", depth),
            mm::result<float>("error", 0, 1, &error));
    });
    return *error;
}

struct manager {
    mm_manager *m = nullptr;
    explicit manager(const char *policy, int64_t bytes) {
        mm_options options = {};
        options.policy = policy;
        options.device_bytes = options.pinned_bytes = bytes;
        mm::check(mm_manager_create(&options, &m));
    }
    ~manager() { mm_manager_destroy(m); }
    manager(const manager &) = delete;
    manager &operator=(const manager &) = delete;
};

// Trains, and says whether the weights are as wanted.
bool train(const char *policy, int64_t bytes, const std::array<matrix, depth> &wanted) {
    const manager m(policy, bytes); // is destroyed after the loop
    mm::loop loop(m.m);
    set_up();
    for (int i = 0; i < steps; i++) iterate(loop);
    const bool equal = weight == wanted;
    std::printf("%-22s in %6lld bytes: error %.4f, weights %s\n", policy, static_cast<long long>(bytes), evaluate(loop),
                equal ? "equal" : "DIFFER");
    return equal;
}

} // namespace

int main() {
    set_up();
    for (int i = 0; i < steps; i++) iterate_plain();
    const std::array<matrix, depth> wanted = weight;
    std::printf("plain: %d bytes of maps\n", (2 * depth + 3) * n * int(sizeof(float)));
    try {
        bool equal = train("liveness", 72000, wanted);
        equal = train("recompute:mode=sqrt", 40000, wanted) && equal;
        equal = train("swap-async", 52000, wanted) && equal;
        if (!equal) return 1;
    } catch (const mm::error &e) {
        std::printf("%s: %s\n", mm_status_name(e.status()), e.what());
        return 1;
    }
    try {
        train("liveness", 24000, wanted);
    } catch (const mm::error &e) {
        std::printf("%s: %s\n", mm_status_name(e.status()), e.what());
        return e.status() == MM_ERR_INFEASIBLE ? 0 : 1;
    }
    return 1;
}
