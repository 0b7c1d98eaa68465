/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sources.h - hosts of source code that the profile "standard" opens.
 *
 * Data, in the grammar of host_pattern_parse() with a port each. Package
 * registries are not among them: those are asked of the tools (image/registry.h).
 */
#ifndef CLOCHE_POLICY_SOURCES_H
#define CLOCHE_POLICY_SOURCES_H

/* NULL-terminated. */
extern const char *const source_hosts[];

#endif
