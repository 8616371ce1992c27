#include "nets/zoo.h"

void nets_build_tiny(nets_net *net) {
    int x = nets_add_data(net, 32, 32, 3, 10);
    x = nets_add1(net, "conv1", NETS_CONV,
                  &(nets_attrs){.out_channels = 8, .kernel = {5, 5}, .pad = {2, 2}, .bias = true}, x);
    x = nets_add1(net, "relu1", NETS_RELU, NULL, x);
    x = nets_add1(net, "maxpool", NETS_MAX_POOL, &(nets_attrs){.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}}, x);
    x = nets_add1(net, "conv2", NETS_CONV, &(nets_attrs){.out_channels = 16, .kernel = {3, 3}, .pad = {1, 1}}, x);
    x = nets_add1(net, "bn2", NETS_BATCH_NORM, NULL, x);
    x = nets_add1(net, "relu2", NETS_RELU, NULL, x);
    x = nets_add1(net, "dropout", NETS_DROPOUT, &(nets_attrs){.p = 0.25f}, x);
    x = nets_add1(net, "avgpool", NETS_AVG_POOL, &(nets_attrs){.kernel = {4, 4}}, x);
    x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 10, .bias = true}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
}
