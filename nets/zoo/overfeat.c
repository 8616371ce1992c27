/* SPDX-License-Identifier: MIT */
/* OverFeat's fast model, Sermanet et al. 2013, table 1: 231x231. The second convolution has no padding: only then does
 * its pool give the table's 12x12. Dropout after the first two linear layers, as their section 3.2. */
#include "nets/zoo/layers.h"

void zoo_build_overfeat(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    const zoo_window pool = {2, 2, 0}, same = {3, 1, 1};
    int x = zoo_data(z, 3);
    x = zoo_relu(z, "relu1", zoo_conv(z, "conv1", 96, (zoo_window){11, 4, 0}, x));
    x = zoo_max_pool(z, "pool1", pool, x);
    x = zoo_relu(z, "relu2", zoo_conv(z, "conv2", 256, (zoo_window){5, 1, 0}, x));
    x = zoo_max_pool(z, "pool2", pool, x);
    x = zoo_relu(z, "relu3", zoo_conv(z, "conv3", 512, same, x));
    x = zoo_relu(z, "relu4", zoo_conv(z, "conv4", 1024, same, x));
    x = zoo_relu(z, "relu5", zoo_conv(z, "conv5", 1024, same, x));
    x = zoo_max_pool(z, "pool5", pool, x);
    x = zoo_dropout(z, "drop6", 0.5f, zoo_relu(z, "relu6", zoo_linear(z, "fc6", 3072, x)));
    x = zoo_dropout(z, "drop7", 0.5f, zoo_relu(z, "relu7", zoo_linear(z, "fc7", 4096, x)));
    zoo_classify(z, "fc8", x);
}
