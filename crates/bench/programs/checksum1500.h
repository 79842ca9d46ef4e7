/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define BYTES 1500
#define COUNT 1
#include "checksum.h"
