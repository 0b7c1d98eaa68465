/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties: a question that is accepted ends where the input ends and says the same
 * when it is written again; every answer to it is read by an independent reader, to the
 * last byte, as what went in, fits what the asker takes, and is no question.
 *
 * The first byte chooses the answer, the rest is the question.
 */
#include <stdlib.h>

#include "wire/dns.h"
#include "lib/dns_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void answer(const struct dns_question *q, const struct dns_answer *a, size_t cap)
{
	static uint8_t m[2048];
	struct dns_question none;
	struct dns_read d;
	size_t n = dns_answer_put(m, cap, q, a);

	if (n == 0) {
		check(cap < DNS_UDP_MAX); /* less than every asker takes */
		return;
	}
	check(n <= cap && n <= q->udp_max);
	check(dns_read_response(&d, m, n));
	check(d.id == q->id && d.qtype == q->qtype && strcmp(d.qname, q->asked) == 0);
	/* QR and RA, RD as asked, no AA, TC, AD: the rest is the code */
	check(d.flags == (0x8080u | (q->rd ? 0x100u : 0) | a->rcode));
	check(d.opt == q->edns && d.opt_do == q->dnssec_ok);
	check(d.n_a <= a->n && (d.n_a == 0 || (a->rcode == 0 && q->qtype == DNS_TYPE_A)));
	for (size_t i = 0; i < d.n_a; i++)
		check(d.addr[i] == a->addrs[i] && d.ttl[i] == a->ttl_s);
	if (a->rcode == 0 && q->qtype == DNS_TYPE_A && cap >= q->udp_max)
		check(d.n_a == a->n || n + 16 > q->udp_max);
	check(dns_question_parse(&none, span_of(m, n)) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dns_question q, part;

	if (size == 0)
		return 0;
	struct span in = span_of(data + 1, size - 1);
	if (dns_question_parse(&q, in) < 0)
		return 0;
	size_t n = strlen(q.asked);
	check(n <= DNS_NAME_MAX && n == strlen(q.name));
	check(q.udp_max >= DNS_UDP_MAX && q.udp_max <= DNS_EDNS_MAX);
	check(q.edns || (q.udp_max == DNS_UDP_MAX && !q.dnssec_ok));
	for (size_t i = 0; i < n; i++)
		check(q.name[i] == q.asked[i] || (q.name[i] ^ q.asked[i]) == 32);
	for (size_t cut = 0; cut < in.len; cut++)
		check(dns_question_parse(&part, span_of(in.p, cut)) < 0);

	struct dns_answer a = { .rcode = data[0] >> 4 & 7, .ttl_s = data[0] * 77777777u };
	a.n = data[0] & 31;
	if (a.n > DNS_ADDRS_MAX)
		a.n = DNS_ADDRS_MAX;
	for (size_t i = 0; i < a.n; i++)
		a.addrs[i] = (uint32_t)(i + 1) * 0x9e3779b9u;
	for (size_t cap = 0; cap < 320; cap += 7)
		answer(&q, &a, cap);
	answer(&q, &a, DNS_UDP_MAX);
	answer(&q, &a, 2048);
	return 0;
}
