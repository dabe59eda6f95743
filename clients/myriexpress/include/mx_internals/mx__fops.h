/* MX message passing over Causeway: some builds test whether this file exists.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef MX__FOPS_H
#define MX__FOPS_H
#include "../mx_io.h"
#endif
