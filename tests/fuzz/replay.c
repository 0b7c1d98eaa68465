/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - runs a libFuzzer target over the files of its corpus.
 *
 * The ordinary test run has no libFuzzer: each target is linked with this main
 * and gets the folder of its corpus as argument, so a committed crash stays
 * fixed. An empty or missing corpus is an error: it would test nothing.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *dir, const char *name)
{
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name);

	if (n < 0 || (size_t)n >= sizeof(path))
		return 1;
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) < 0)
		return 1;
	long size = ftell(f);
	rewind(f);
	/* exactly as long as the input, so a sanitizer sees one byte too many */
	uint8_t *b = malloc(size > 0 ? (size_t)size : 1);
	if (!b || size < 0 || fread(b, 1, (size_t)size, f) != (size_t)size)
		return 1;
	(void)fclose(f); /* only read */
	(void)LLVMFuzzerTestOneInput(b, (size_t)size);
	free(b);
	return 0;
}

int main(int argc, char **argv)
{
	int count = 0;

	if (argc != 2) {
		(void)fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
		return 2;
	}
	DIR *d = opendir(argv[1]);
	if (!d) {
		perror(argv[1]);
		return 1;
	}
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		if (replay(argv[1], e->d_name) != 0) {
			(void)fprintf(stderr, "cannot read %s/%s\n", argv[1], e->d_name);
			return 1;
		}
		count++;
	}
	(void)closedir(d); /* only read */
	printf("%d inputs replayed\n", count);
	return count > 0 ? 0 : 1;
}
