/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - the manifest's file form, its check, its readers and its writer.
 *
 * Little endian: a header, then the tables of entries, projects and rules, all
 * of fixed-size records, then one area of bytes: name and link text of every
 * entry in order, the projects' paths, the rules' texts. Nothing is stored
 * twice and nothing is left over, so a manifest has exactly one spelling.
 *
 * The entries are in breadth-first order. That is what makes the check linear
 * and without memory: walking i upward, the children of each directory must
 * start exactly where those of the one before ended, and i must lie below that
 * mark. So every entry has one parent, which comes before it: no cycle, no
 * orphan, no sharing. The same walk counts levels.
 */
#include "manifest/manifest.h"

#include <endian.h>
#include <errno.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"

enum {
	HEADER_BYTES = 72,
	ENTRY_BYTES = 96,
	PROJECT_BYTES = 24,
	RULES_BYTES = 12,
	VERSION = 1,
	BLOCK_BYTES = 4096,
	DEPTH_MAX = PATH_DEPTH_MAX + 1, /* the project's own directory is level 1 */
};

#define NAMES_MAX ((size_t)UINT32_MAX)
#define BLOCKS_MAX ((uint64_t)1 << 40)

static const uint8_t magic[8] = { 'C', 'L', 'O', 'C', 'H', 'E', 'M', 'F' };

/* offsets in an entry's record */
enum {
	E_PARENT = 0,
	E_NAME_AT = 4,
	E_SAME_AS = 8,
	E_FIRST_CHILD = 12,
	E_N_CHILDREN = 16,
	E_UID = 20,
	E_GID = 24,
	E_NLINK = 28,
	E_MODE = 32,
	E_FLAGS = 34,
	E_PROJECT = 36,
	E_LINK_LEN = 38,
	E_NAME_LEN = 40,
	E_KIND = 41,
	E_WHY = 42, /* 43: zero, 44: zero */
	E_SIZE = 48,
	E_MTIME = 56,
	E_CTIME = 64,
	E_INO = 72,
	E_DEV = 80,
	E_BLOCK = 88,
};

enum {
	FLAGS_ALL = MANIFEST_HIDDEN | MANIFEST_EXCLUDED | MANIFEST_SKIPPED | MANIFEST_TRACKED |
	            MANIFEST_IGNORED | MANIFEST_GENERATED | MANIFEST_GIT | MANIFEST_RELATIVE |
	            MANIFEST_DANGLING,
};

static uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static void set16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

static void set32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static void set64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static uint64_t blocks_of(uint64_t size)
{
	return size / BLOCK_BYTES + (size % BLOCK_BYTES != 0);
}

/* ---- reading ---- */

static const uint8_t *record(const struct manifest *m, uint32_t i)
{
	return m->map.p + m->entries_at + (size_t)i * ENTRY_BYTES;
}

static struct span name_of(const struct manifest *m, const uint8_t *e)
{
	return span_of(m->map.p + m->names_at + get32(e + E_NAME_AT), e[E_NAME_LEN]);
}

void manifest_get(const struct manifest *m, uint32_t i, struct manifest_entry *out)
{
	ASSERT(i < m->count);
	const uint8_t *e = record(m, i);
	struct span name = name_of(m, e);

	*out = (struct manifest_entry){
		.parent = get32(e + E_PARENT),
		.kind = e[E_KIND],
		.why = e[E_WHY],
		.flags = get16(e + E_FLAGS),
		.project = get16(e + E_PROJECT),
		.mode = get16(e + E_MODE),
		.uid = get32(e + E_UID),
		.gid = get32(e + E_GID),
		.nlink = get32(e + E_NLINK),
		.size = get64(e + E_SIZE),
		.mtime_ns = (int64_t)get64(e + E_MTIME),
		.ctime_ns = (int64_t)get64(e + E_CTIME),
		.ino = get64(e + E_INO),
		.dev = get64(e + E_DEV),
		.block = get64(e + E_BLOCK),
		.same_as = get32(e + E_SAME_AS),
		.first_child = get32(e + E_FIRST_CHILD),
		.n_children = get32(e + E_N_CHILDREN),
		.name = name,
		.link = span_of(name.p + name.len, get16(e + E_LINK_LEN)),
	};
}

void manifest_project(const struct manifest *m, uint32_t i, struct manifest_project *out)
{
	ASSERT(i < m->n_projects);
	const uint8_t *p = m->map.p + m->projects_at + (size_t)i * PROJECT_BYTES;
	/* paths lie behind the last entry's name, in order: the lengths before this one count */
	const uint8_t *last = record(m, m->count - 1);
	size_t at = get32(last + E_NAME_AT) + (size_t)last[E_NAME_LEN] + get16(last + E_LINK_LEN);

	for (uint32_t k = 0; k < i; k++)
		at += get16(m->map.p + m->projects_at + (size_t)k * PROJECT_BYTES + 4);
	*out = (struct manifest_project){
		.entry = get32(p),
		.path = span_of(m->map.p + m->names_at + at, get16(p + 4)),
		.dev = get64(p + 8),
		.ino = get64(p + 16),
	};
}

void manifest_rules(const struct manifest *m, uint32_t i, struct manifest_rules *out)
{
	ASSERT(i < m->n_rules);
	const uint8_t *p = m->map.p + m->rules_at + (size_t)i * RULES_BYTES;
	uint32_t word = get32(p + 8);
	/* the text ends where the next one starts, the last at the end of the area */
	uint32_t at = get32(p + 4);
	size_t end = i + 1 < m->n_rules ? get32(p + RULES_BYTES + 4) : m->names_len;

	*out = (struct manifest_rules){
		.dir = get32(p),
		.source = (uint8_t)word,
		.text = span_of(m->map.p + m->names_at + at, end - at),
	};
}

uint32_t manifest_child(const struct manifest *m, uint32_t dir, struct span name)
{
	ASSERT(dir < m->count);
	const uint8_t *d = record(m, dir);
	uint32_t lo = get32(d + E_FIRST_CHILD), n = get32(d + E_N_CHILDREN);

	while (n) {
		uint32_t half = n / 2;
		int c = span_cmp(name_of(m, record(m, lo + half)), name);

		if (c == 0)
			return lo + half;
		if (c < 0) {
			lo += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return MANIFEST_NONE;
}

uint32_t manifest_find(const struct manifest *m, uint32_t dir, struct span path)
{
	uint32_t at = dir;

	if (path.len == 0)
		return dir < m->count ? dir : MANIFEST_NONE;
	for (;;) {
		const uint8_t *slash = memchr(path.p, '/', path.len);
		size_t n = slash ? (size_t)(slash - path.p) : path.len;

		at = manifest_child(m, at, span_of(path.p, n));
		if (at == MANIFEST_NONE || !slash)
			return at;
		path = span_of(slash + 1, path.len - n - 1);
	}
}

int manifest_path(const struct manifest *m, uint32_t i, struct buf *out)
{
	uint32_t chain[DEPTH_MAX + 1];
	size_t n = 0;

	ASSERT(i < m->count);
	/* entry 0 and the projects below it name nothing inside a project */
	while (i != 0 && get32(record(m, i) + E_PARENT) != 0) {
		ASSERT(n < ARRAY_LEN(chain)); /* manifest_open() has counted the levels */
		chain[n++] = i;
		i = get32(record(m, i) + E_PARENT);
	}
	size_t before = out->len;
	while (n) {
		struct span name = name_of(m, record(m, chain[--n]));

		if (buf_put(out, name.p, name.len) < 0 || (n && buf_put(out, "/", 1) < 0)) {
			out->len = before;
			return -ENOMEM;
		}
	}
	return 0;
}

/* data that lies behind the metadata part, listed once an inode */
static bool has_data(const uint8_t *e, uint32_t i)
{
	return get64(e + E_BLOCK) != 0 && get32(e + E_SAME_AS) == i &&
	       !(get16(e + E_FLAGS) & MANIFEST_GENERATED);
}

static int cmp_block(const void *a, const void *b, void *arg)
{
	const struct manifest *m = arg;
	uint32_t ia, ib;

	memcpy(&ia, a, sizeof(ia));
	memcpy(&ib, b, sizeof(ib));
	uint64_t x = get64(record(m, ia) + E_BLOCK), y = get64(record(m, ib) + E_BLOCK);
	return x < y ? -1 : x > y;
}

int manifest_order(const struct manifest *m, uint32_t **out, size_t *out_n)
{
	size_t n = 0;
	uint64_t last = 0;
	bool sorted = true;

	for (uint32_t i = 0; i < m->count; i++)
		n += has_data(record(m, i), i);
	uint32_t *order = malloc(MAX(n, (size_t)1) * sizeof(*order));
	if (!order)
		return -ENOMEM;
	n = 0;
	for (uint32_t i = 0; i < m->count; i++) {
		if (!has_data(record(m, i), i))
			continue;
		uint64_t block = get64(record(m, i) + E_BLOCK);
		sorted = sorted && block >= last;
		last = block;
		order[n++] = i;
	}
	if (!sorted)
		qsort_r(order, n, sizeof(*order), cmp_block, (void *)(uintptr_t)m);
	*out = order;
	*out_n = n;
	return 0;
}

uint32_t manifest_file_at(const struct manifest *m, const uint32_t *order, size_t n, uint64_t block)
{
	size_t lo = 0;

	while (n) { /* first one behind @block */
		size_t half = n / 2;

		if (get64(record(m, order[lo + half]) + E_BLOCK) <= block) {
			lo += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	if (lo == 0)
		return MANIFEST_NONE;
	const uint8_t *e = record(m, order[lo - 1]);
	if (block - get64(e + E_BLOCK) >= blocks_of(get64(e + E_SIZE)))
		return MANIFEST_NONE;
	return order[lo - 1];
}

/* ---- the check ---- */

static const char *check_kind(const uint8_t *e)
{
	uint16_t flags = get16(e + E_FLAGS);
	uint16_t absent = flags & MANIFEST_ABSENT;
	uint8_t kind = e[E_KIND];

	if (kind < MANIFEST_DIR || kind > MANIFEST_OTHER)
		return "unknown kind";
	if (flags & ~FLAGS_ALL || e[E_WHY] > MANIFEST_WHY_LAST || e[43] || get32(e + 44))
		return "unknown flag";
	if (absent & (absent - 1))
		return "two reasons to be absent";
	if (!!(flags & MANIFEST_SKIPPED) != (e[E_WHY] != MANIFEST_WHY_NONE))
		return "skipped without a reason, or a reason without skipping";
	if (kind == MANIFEST_OTHER && !absent)
		return "special file in the image";
	if (flags & MANIFEST_GENERATED && (kind != MANIFEST_FILE || absent))
		return "generated content for no file";
	if (flags & (MANIFEST_RELATIVE | MANIFEST_DANGLING) && (kind != MANIFEST_LINK || absent))
		return "link flag without a link";
	if (get16(e + E_LINK_LEN) > MANIFEST_LINK_MAX)
		return "link text too long";
	if (kind == MANIFEST_LINK ? !get16(e + E_LINK_LEN) && !absent : get16(e + E_LINK_LEN) != 0)
		return "wrong link text";
	if (kind != MANIFEST_DIR || absent ? get32(e + E_N_CHILDREN) != 0 : false)
		return "children of no directory";
	if (get32(e + E_N_CHILDREN) == 0 && get32(e + E_FIRST_CHILD) != 0)
		return "first child of none";
	if (get16(e + E_MODE) > 07777)
		return "mode out of range";
	if (get64(e + E_SIZE) > INT64_MAX)
		return "size out of range";
	return NULL;
}

static const char *check_data(const struct manifest *m, const uint8_t *e, uint32_t i)
{
	uint16_t flags = get16(e + E_FLAGS);
	uint64_t block = get64(e + E_BLOCK), size = get64(e + E_SIZE);
	uint32_t same = get32(e + E_SAME_AS);

	if (same > i)
		return "hard link to a later entry";
	if (same < i) {
		const uint8_t *first = record(m, same);

		if (e[E_KIND] != MANIFEST_FILE || first[E_KIND] != MANIFEST_FILE ||
		    (flags | get16(first + E_FLAGS)) & (MANIFEST_ABSENT | MANIFEST_GENERATED) ||
		    get32(first + E_SAME_AS) != same)
			return "hard link to what is none";
		if (get64(first + E_INO) != get64(e + E_INO) ||
		    get64(first + E_DEV) != get64(e + E_DEV) || get64(first + E_SIZE) != size ||
		    get64(first + E_BLOCK) != block)
			return "hard link to another inode";
		return NULL;
	}
	if (flags & MANIFEST_GENERATED)
		return block < m->data_block ? NULL : "generated content outside the metadata";
	if (e[E_KIND] != MANIFEST_FILE || flags & MANIFEST_ABSENT || size == 0)
		return block == 0 ? NULL : "data of what has none";
	if (block == 0 || block < m->data_block)
		return "data inside the metadata";
	if (block > m->image_blocks || blocks_of(size) > m->image_blocks - block)
		return "data outside the image";
	return NULL;
}

static const char *check_entries(const struct manifest *m, size_t *out_names, bool *out_ascending)
{
	uint32_t next = 1;      /* where the next directory's children start */
	uint32_t level_end = 1; /* first entry of the level below */
	uint32_t depth = 0;
	size_t names = 0;
	uint64_t data_end = 0;

	*out_ascending = true;
	for (uint32_t i = 0; i < m->count; i++) {
		const uint8_t *e = record(m, i);
		const char *bad = check_kind(e);
		uint32_t n = get32(e + E_N_CHILDREN), parent = get32(e + E_PARENT);

		if (bad)
			return bad;
		if (i >= next)
			return "entry without a parent";
		if (i == level_end) {
			level_end = next;
			depth++;
		}
		if (depth > DEPTH_MAX)
			return "too deep";
		if (n) {
			if (get32(e + E_FIRST_CHILD) != next)
				return "children out of order";
			if (n > m->count - next)
				return "children beyond the end";
			next += n;
		}
		size_t text = (size_t)e[E_NAME_LEN] + get16(e + E_LINK_LEN);
		if (get32(e + E_NAME_AT) != names || text > m->names_len - names)
			return "name out of place";
		names += text;

		if (i == 0) {
			if (e[E_KIND] != MANIFEST_DIR || parent != 0 || e[E_NAME_LEN] != 0 ||
			    get16(e + E_FLAGS) != 0 || get16(e + E_PROJECT) != 0 ||
			    get32(e + E_SAME_AS) != 0 || get64(e + E_BLOCK) != 0 ||
			    n != m->n_projects)
				return "wrong root";
			continue;
		}
		/* i < next, so some directory before it claims it; is it the one it names? */
		if (parent >= i)
			return "parent behind its child";
		const uint8_t *p = record(m, parent);
		if (i < get32(p + E_FIRST_CHILD) ||
		    i - get32(p + E_FIRST_CHILD) >= get32(p + E_N_CHILDREN))
			return "child of another directory";
		struct span name = name_of(m, e);
		if (!path_name_ok(name))
			return "wrong name";
		if (i > get32(p + E_FIRST_CHILD) &&
		    span_cmp(name_of(m, record(m, i - 1)), name) >= 0)
			return "names out of order";
		struct span link = span_of(name.p + name.len, get16(e + E_LINK_LEN));
		if (link.len && memchr(link.p, 0, link.len))
			return "NUL in a link text";
		if (parent == 0) {
			if (e[E_KIND] != MANIFEST_DIR || get16(e + E_FLAGS) & MANIFEST_ABSENT ||
			    get16(e + E_PROJECT) >= m->n_projects)
				return "wrong project";
		} else if (get16(e + E_PROJECT) != get16(p + E_PROJECT)) {
			return "entry of another project";
		}
		bad = check_data(m, e, i);
		if (bad)
			return bad;
		if (has_data(e, i)) {
			uint64_t block = get64(e + E_BLOCK);

			if (block < data_end)
				*out_ascending = false;
			data_end = block + blocks_of(get64(e + E_SIZE));
		}
	}
	if (next != m->count)
		return "fewer entries than children";
	*out_names = names;
	return NULL;
}

static const char *check_tables(const struct manifest *m, size_t names)
{
	for (uint32_t k = 0; k < m->n_projects; k++) {
		const uint8_t *p = m->map.p + m->projects_at + (size_t)k * PROJECT_BYTES;
		uint32_t entry = get32(p);
		size_t len = get16(p + 4);

		if (entry == 0 || entry > m->n_projects || get16(p + 6))
			return "project of no directory";
		/* the root has n_projects children and each names one k: a bijection */
		if (get16(record(m, entry) + E_PROJECT) != k)
			return "projects and directories disagree";
		if (len > m->names_len - names)
			return "project path out of place";
		const uint8_t *path = m->map.p + m->names_at + names;
		if (len == 0 || path[0] != '/' || memchr(path, 0, len))
			return "project path not absolute";
		names += len;
	}
	if (m->names_len - names > MANIFEST_RULES_MAX)
		return "too many bytes of rules";
	for (uint32_t k = 0; k < m->n_rules; k++) {
		const uint8_t *p = m->map.p + m->rules_at + (size_t)k * RULES_BYTES;
		uint32_t dir = get32(p), source = get32(p + 8);
		size_t end = k + 1 < m->n_rules ? get32(p + RULES_BYTES + 4) : m->names_len;

		if (dir >= m->count || record(m, dir)[E_KIND] != MANIFEST_DIR)
			return "rules of no directory";
		if (source < MANIFEST_RULES_GITIGNORE || source > MANIFEST_RULES_HEAVY)
			return "rules of an unknown source";
		if (get32(p + 4) != names || end < names || end > m->names_len)
			return "rules out of place";
		if (source == MANIFEST_RULES_HEAVY && end != names)
			return "text where there is none";
		names = end;
	}
	return names == m->names_len ? NULL : "bytes left over";
}

/* Only when blocks do not ascend with the entries: nothing of ours writes that. */
static int check_overlap(const struct manifest *m, const char **out_bad)
{
	AUTO_FREE uint32_t *order = NULL;
	size_t n;
	uint64_t end = 0;
	int ret = manifest_order(m, &order, &n);

	if (ret < 0)
		return ret;
	for (size_t k = 0; k < n; k++) {
		const uint8_t *e = record(m, order[k]);

		if (get64(e + E_BLOCK) < end)
			*out_bad = "two files in one block";
		end = get64(e + E_BLOCK) + blocks_of(get64(e + E_SIZE));
	}
	return 0;
}

int manifest_open(struct manifest *out, struct span map, struct err *err)
{
	struct manifest m = { .map = map };
	struct rd r = rd_of(map.p, map.len);
	const char *bad = NULL;
	bool ascending = false;
	size_t names = 0;

	struct span got = rd_take(&r, sizeof(magic));
	uint32_t version = (uint32_t)rd_le(&r, 4);
	m.count = (uint32_t)rd_le(&r, 4);
	m.n_projects = (uint32_t)rd_le(&r, 4);
	m.n_rules = (uint32_t)rd_le(&r, 4);
	m.data_block = rd_le(&r, 8);
	m.image_blocks = rd_le(&r, 8);
	m.scanned_ns = (int64_t)rd_le(&r, 8);
	uint64_t names_len = rd_le(&r, 8);
	struct span zero = rd_take(&r, HEADER_BYTES - 56);
	if (r.bad || memcmp(got.p, magic, sizeof(magic)) != 0)
		return err_set(err, -EPROTO, "not a manifest");
	if (version != VERSION)
		return err_set(err, -EPROTO, "manifest of version %u, known is %d", version,
		               VERSION);
	if (m.count > MANIFEST_ENTRIES_MAX)
		return err_set(err, -EFBIG, "manifest with %u entries, at most %d are allowed",
		               m.count, MANIFEST_ENTRIES_MAX);
	if (m.n_projects > MANIFEST_PROJECTS_MAX)
		return err_set(err, -EFBIG, "manifest with %u projects, at most %d are allowed",
		               m.n_projects, MANIFEST_PROJECTS_MAX);
	if (names_len > NAMES_MAX || m.n_rules > MANIFEST_ENTRIES_MAX)
		return err_set(err, -EFBIG, "manifest with too many names or rules");
	for (size_t i = 0; i < zero.len; i++)
		if (zero.p[i])
			bad = "reserved bytes in use";
	if (m.count == 0 || m.data_block > m.image_blocks || m.image_blocks > BLOCKS_MAX)
		bad = "header out of range";
	/* all factors are bounded above: no overflow in 64 bits */
	m.entries_at = HEADER_BYTES;
	m.projects_at = m.entries_at + (size_t)m.count * ENTRY_BYTES;
	m.rules_at = m.projects_at + (size_t)m.n_projects * PROJECT_BYTES;
	m.names_at = m.rules_at + (size_t)m.n_rules * RULES_BYTES;
	m.names_len = (size_t)names_len;
	if (m.names_at > map.len || map.len - m.names_at != m.names_len)
		bad = "length and tables disagree";
	if (!bad)
		bad = check_entries(&m, &names, &ascending);
	if (!bad)
		bad = check_tables(&m, names);
	if (!bad && !ascending) {
		int ret = check_overlap(&m, &bad);

		if (ret < 0)
			return err_code(err, ret, "cannot check the manifest");
	}
	if (bad)
		return err_set(err, -EPROTO, "broken manifest: %s", bad);
	*out = m;
	return 0;
}

/* ---- writing ---- */

struct manifest_writer {
	struct buf entries, projects, rules; /* records */
	struct buf names, paths, texts;
	uint32_t count, n_projects, n_rules;
	uint32_t last_parent;
	uint64_t data_block, image_blocks;
};

struct manifest_writer *manifest_writer_new(void)
{
	return xcalloc(1, sizeof(struct manifest_writer));
}

void manifest_writer_free(struct manifest_writer *w)
{
	if (!w)
		return;
	buf_fini(&w->entries);
	buf_fini(&w->projects);
	buf_fini(&w->rules);
	buf_fini(&w->names);
	buf_fini(&w->paths);
	buf_fini(&w->texts);
	free(w);
}

static uint8_t *written(struct manifest_writer *w, uint32_t i)
{
	ASSERT(i < w->count);
	return w->entries.p + (size_t)i * ENTRY_BYTES;
}

int manifest_add(struct manifest_writer *w, const struct manifest_entry *e, uint32_t *out_index)
{
	uint32_t i = w->count;
	uint8_t rec[ENTRY_BYTES] = { 0 };
	int ret;

	if (i >= MANIFEST_ENTRIES_MAX || e->name.len > PATH_NAME_MAX ||
	    e->link.len > MANIFEST_LINK_MAX || w->names.len + e->name.len + e->link.len > NAMES_MAX)
		return -EFBIG;
	if (i == 0 ? e->parent != 0 : e->parent >= i || e->parent < w->last_parent)
		return -EINVAL;
	set32(rec + E_PARENT, e->parent);
	set32(rec + E_NAME_AT, (uint32_t)w->names.len);
	set32(rec + E_SAME_AS, e->same_as);
	set32(rec + E_UID, e->uid);
	set32(rec + E_GID, e->gid);
	set32(rec + E_NLINK, e->nlink);
	set16(rec + E_MODE, (uint16_t)(e->mode & 07777));
	set16(rec + E_FLAGS, e->flags);
	set16(rec + E_PROJECT, e->project);
	set16(rec + E_LINK_LEN, (uint16_t)e->link.len);
	rec[E_NAME_LEN] = (uint8_t)e->name.len;
	rec[E_KIND] = e->kind;
	rec[E_WHY] = e->why;
	set64(rec + E_SIZE, e->size);
	set64(rec + E_MTIME, (uint64_t)e->mtime_ns);
	set64(rec + E_CTIME, (uint64_t)e->ctime_ns);
	set64(rec + E_INO, e->ino);
	set64(rec + E_DEV, e->dev);
	set64(rec + E_BLOCK, e->block);
	ret = buf_reserve(&w->names, e->name.len + e->link.len);
	if (ret == 0)
		ret = buf_put(&w->entries, rec, sizeof(rec));
	if (ret < 0)
		return ret;
	if (buf_put(&w->names, e->name.p, e->name.len) < 0 ||
	    buf_put(&w->names, e->link.p, e->link.len) < 0)
		ASSERT(!"room was reserved");
	w->count++;
	if (i > 0) {
		uint8_t *p = written(w, e->parent);

		if (get32(p + E_N_CHILDREN) == 0)
			set32(p + E_FIRST_CHILD, i);
		set32(p + E_N_CHILDREN, get32(p + E_N_CHILDREN) + 1);
		w->last_parent = e->parent;
	}
	*out_index = i;
	return 0;
}

void manifest_set_block(struct manifest_writer *w, uint32_t i, uint64_t block)
{
	set64(written(w, i) + E_BLOCK, block);
}

void manifest_set_flags(struct manifest_writer *w, uint32_t i, uint16_t flags, uint8_t why)
{
	set16(written(w, i) + E_FLAGS, flags);
	written(w, i)[E_WHY] = why;
}

int manifest_add_project(struct manifest_writer *w, const struct manifest_project *p)
{
	uint8_t rec[PROJECT_BYTES] = { 0 };

	if (w->n_projects >= MANIFEST_PROJECTS_MAX || p->path.len > UINT16_MAX)
		return -EFBIG;
	set32(rec, p->entry);
	set16(rec + 4, (uint16_t)p->path.len);
	set64(rec + 8, p->dev);
	set64(rec + 16, p->ino);
	int ret = buf_reserve(&w->paths, p->path.len);
	if (ret == 0)
		ret = buf_put(&w->projects, rec, sizeof(rec));
	if (ret == 0)
		ret = buf_put(&w->paths, p->path.p, p->path.len);
	if (ret == 0)
		w->n_projects++;
	return ret;
}

int manifest_add_rules(struct manifest_writer *w, const struct manifest_rules *r)
{
	uint8_t rec[RULES_BYTES] = { 0 };

	if (w->n_rules >= MANIFEST_ENTRIES_MAX || r->text.len > MANIFEST_RULES_MAX - w->texts.len)
		return -EFBIG;
	set32(rec, r->dir);
	set32(rec + 4, (uint32_t)w->texts.len); /* made absolute when the names are complete */
	set32(rec + 8, r->source);
	int ret = buf_reserve(&w->texts, r->text.len);
	if (ret == 0)
		ret = buf_put(&w->rules, rec, sizeof(rec));
	if (ret == 0)
		ret = buf_put(&w->texts, r->text.p, r->text.len);
	if (ret == 0)
		w->n_rules++;
	return ret;
}

void manifest_set_image(struct manifest_writer *w, uint64_t data_block, uint64_t image_blocks)
{
	w->data_block = data_block;
	w->image_blocks = image_blocks;
}

int manifest_write(struct manifest_writer *w, int fd, int64_t scanned_ns, struct err *err)
{
	uint8_t head[HEADER_BYTES] = { 0 };
	struct wr h = wr_of(head, sizeof(head));
	size_t names = w->names.len + w->paths.len + w->texts.len;
	const struct buf *parts[] = { &w->entries, &w->projects, &w->rules,
		                      &w->names,   &w->paths,    &w->texts };
	off_t at = HEADER_BYTES;

	if (names > NAMES_MAX)
		return err_set(err, -EFBIG, "too many bytes of names for a manifest");
	/* the block may have been told for the first name only */
	for (uint32_t i = 0; i < w->count; i++) {
		uint32_t same = get32(written(w, i) + E_SAME_AS);

		if (same < i)
			set64(written(w, i) + E_BLOCK, get64(written(w, same) + E_BLOCK));
	}
	wr_put(&h, magic, sizeof(magic));
	wr_le(&h, VERSION, 4);
	wr_le(&h, w->count, 4);
	wr_le(&h, w->n_projects, 4);
	wr_le(&h, w->n_rules, 4);
	wr_le(&h, w->data_block, 8);
	wr_le(&h, w->image_blocks, 8);
	wr_le(&h, (uint64_t)scanned_ns, 8);
	wr_le(&h, names, 8);
	ASSERT(!h.bad);

	uint32_t base = (uint32_t)(w->names.len + w->paths.len);
	for (uint32_t k = 0; k < w->n_rules; k++) {
		uint8_t *p = w->rules.p + (size_t)k * RULES_BYTES + 4;

		set32(p, get32(p) + base);
	}
	int ret = fd_pwrite_all(fd, head, sizeof(head), 0);
	for (size_t k = 0; k < ARRAY_LEN(parts) && ret == 0; k++) {
		ret = fd_pwrite_all(fd, parts[k]->p, parts[k]->len, at);
		at += (off_t)parts[k]->len;
	}
	for (uint32_t k = 0; k < w->n_rules; k++) { /* so that it can be written again */
		uint8_t *p = w->rules.p + (size_t)k * RULES_BYTES + 4;

		set32(p, get32(p) - base);
	}
	return ret < 0 ? err_code(err, ret, "cannot write the manifest") : 0;
}
