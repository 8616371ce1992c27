/* SPDX-License-Identifier: MIT */
/* conv-relu-maxpool-conv-bn-relu-dropout-avgpool-linear on 32x32x3: a little of everything, small. */
#include "nets/zoo/layers.h"

void zoo_build_tiny(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    int x = zoo_data(z, 3);
    x = zoo_conv(z, "conv1", 8, (zoo_window){5, 1, 2}, x);
    x = zoo_relu(z, "relu1", x);
    x = zoo_max_pool(z, "maxpool", (zoo_window){3, 2, 1}, x);
    x = zoo_conv_bare(z, "conv2", 16, (zoo_window){3, 1, 1}, x);
    x = zoo_batch_norm(z, "bn2", x);
    x = zoo_relu(z, "relu2", x);
    x = zoo_dropout(z, "dropout", 0.25f, x);
    x = nets_add1(z->net, "avgpool", NETS_AVG_POOL, &(nets_attrs){.kernel = {4, 4}}, x);
    zoo_classify(z, "fc", x);
}
