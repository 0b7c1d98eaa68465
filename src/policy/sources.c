/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sources.h"

#include <stddef.h>

const char *const source_hosts[] = {
	"github.com:443",
	"github.com:22", /* git over ssh: a server that speaks first */
	"api.github.com:443",
	"*.githubusercontent.com:443", /* raw files, release archives */
	"ghcr.io:443",
	"*.docker.io:443",
	NULL,
};
