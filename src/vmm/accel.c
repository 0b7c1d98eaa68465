/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/vmm.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include "base/err.h"

static const char *const accel_names[] = {
	[VMM_ACCEL_AUTO] = "auto",
	[VMM_ACCEL_KVM] = "kvm",
	[VMM_ACCEL_TCG] = "tcg",
};

int vmm_accel_parse(const char *s, enum vmm_accel *out)
{
	for (size_t i = 0; i < ARRAY_LEN(accel_names); i++) {
		if (strcmp(s, accel_names[i]) == 0) {
			*out = (enum vmm_accel)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *vmm_accel_name(enum vmm_accel a)
{
	return accel_names[a];
}

int vmm_accel_choose(enum vmm_accel asked, const struct vmm_kvm_report *report, enum vmm_accel *out,
                     struct err *err)
{
	if (asked == VMM_ACCEL_TCG) {
		*out = VMM_ACCEL_TCG;
		return 0;
	}
	ASSERT(report);
	if (report->state == VMM_KVM_USABLE) {
		*out = VMM_ACCEL_KVM;
		return 0;
	}
	(void)err_set(err, report->state == VMM_KVM_NO_PERMISSION ? -EACCES : -ENOTSUP,
	              "cannot start the microVM: %s", report->reason);
	return err_hint(err, "%s", report->remedy);
}

/* ---- the TSC ------------------------------------------------------------ */

struct sample {
	uint64_t tsc, ns, width;
};

/* A pair of readings, the closest of some: an interrupt between them is passed over. */
static struct sample sample_tsc(void)
{
	struct sample best = { .width = UINT64_MAX };

	for (int i = 0; i < 8; i++) {
		struct timespec ts;
		uint64_t a = __rdtsc();

		(void)clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
		uint64_t b = __rdtsc();
		if (b - a < best.width)
			best = (struct sample){ .tsc = a + (b - a) / 2,
				                .ns = (uint64_t)ts.tv_sec * 1000000000 +
				                      (uint64_t)ts.tv_nsec,
				                .width = b - a };
	}
	return best;
}

uint32_t vmm_tsc_khz(void)
{
	struct timespec wait = { .tv_nsec = 5 * 1000 * 1000 };
	uint64_t khz[2];

	for (size_t i = 0; i < ARRAY_LEN(khz); i++) {
		struct sample a = sample_tsc();

		(void)nanosleep(&wait, NULL); /* a shorter sleep measures as well */
		struct sample b = sample_tsc();
		if (b.ns <= a.ns || b.tsc <= a.tsc)
			return 0;
		khz[i] = (uint64_t)((unsigned __int128)(b.tsc - a.tsc) * 1000000 / (b.ns - a.ns));
	}
	/* two halves that differ: it follows the clock rate, or it is emulated */
	uint64_t d = khz[0] > khz[1] ? khz[0] - khz[1] : khz[1] - khz[0];
	if (d > khz[0] / 200 || khz[0] > UINT32_MAX || khz[0] < 100000)
		return 0;
	return (uint32_t)((khz[0] + khz[1]) / 2);
}
