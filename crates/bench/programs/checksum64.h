/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define BYTES 64
#define COUNT 16
#include "checksum.h"
