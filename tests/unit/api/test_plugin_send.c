/* SPDX-License-Identifier: BSD-3-Clause */
/** Plugins that are sent: files and signatures at the sender, the list of keys at the receiver, what takes the place of
 * what. One agent sends to itself. The test's thread. */
#include "base/sign.h"
#include "open_files.h"
#include "own_plugin.h"

static const struct auth_key secret = {{1, 2, 3}}, other = {{4, 5, 6}};

static void sign(const char *name, const char *file, const struct auth_key *key)
{
	uint8_t signature[SIGN_BYTES];
	const char *bytes;
	char sig[64];
	size_t n = built(name, &bytes);
	sign_make(key, bytes, n, signature);
	snprintf(sig, sizeof sig, "%s.sig", file);
	install(name, file);
	put_bytes(sig, signature, sizeof signature);
}

/* A line of the list of keys. */
static const char *public(const struct auth_key *key)
{
	static char line[2 * SIGN_PUBLIC_BYTES + 32];
	uint8_t bytes[SIGN_PUBLIC_BYTES];
	sign_public(key, bytes);
	for (unsigned i = 0; i < sizeof bytes; i++)
		snprintf(line + 2 * (size_t)i, 3, "%02x", bytes[i]);
	return strcat(line, "  of the team\n");
}

static void keys(const char *text)
{
	put("keys", text);
	chmod(path_of("keys"), 0644);
}

static void setup(void)
{
	own_dir_make();
	sign("plugin_demo1.so", "demo.so", &secret);
	keys(public(&secret));
	setenv("FAR_PLUGIN_KEYS", path_of("keys"), 1);
	agent = own_begin(NULL);
}

static void teardown(void)
{
	own_end(agent);
	own_dir_remove();
}

TestSuite(api_plugin_send, .init = setup, .fini = teardown);

static enum far_status send_file(const char *file)
{
	return far_plugin_send(agent, "w0", path_of(file), 0, &err);
}

static void refused(const char *file, enum far_status status, const char *text)
{
	cr_assert_eq(send_file(file), status, "%s: %s", text, err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
}

/* A later one of the name replaces the one before. Expect no descriptor of those before left. */
Test(api_plugin_send, sent_and_replaced)
{
	cr_assert_eq(send_file("demo.so"), FAR_OK, "%s", err.text);
	cr_assert_eq(add(1, 2), 3);
	unsigned before = open_files();
	for (unsigned i = 0; i < 4; i++) {
		sign(i % 2 ? "plugin_demo1.so" : "plugin_demo2.so", "demo.so", &secret);
		cr_assert_eq(send_file("demo.so"), FAR_OK, "%s", err.text);
		cr_assert_eq(add(1, 2), i % 2 ? 3 : 1003);
	}
	cr_assert_eq(open_files(), before);
	cr_assert_eq(far_plugin_reload(agent, "demo", NULL, 0, &err), FAR_INVALID);
	cr_assert_str_eq(err.text, "plugin demo was not loaded from a file but sent by worker \"w0\"; name its file");
}

Test(api_plugin_send, signatures)
{
	sign("plugin_demo1.so", "other.so", &other);
	refused("other.so", FAR_DENIED, "none of the 1 keys in ");
	install("plugin_demo2.so", "demo.so"); /* beside the signature of another file */
	refused("demo.so", FAR_DENIED, "has signed this plugin; sign it by `farcall sign`");
	put("demo.so.sig", "short");
	refused("demo.so", FAR_INVALID, "demo.so.sig has 5 bytes and not the 64 of a signature");
	install("plugin_demo1.so", "unsigned.so");
	refused("unsigned.so", FAR_INVALID, "has no signature ");
	refused("absent.so", FAR_SYSTEM, "absent.so cannot be read");
	refused("", FAR_INVALID, "is not a file");
	cr_assert_eq(far_plugin_send(NULL, "w0", "x", 0, &err), FAR_INVALID);
	cr_assert_eq(far_plugin_send(agent, NULL, "x", 0, &err), FAR_INVALID);
	cr_assert_eq(far_plugin_send(agent, "w0", NULL, 0, &err), FAR_INVALID);
	cr_assert_eq(add(1, 2), -(int64_t)FAR_NO_FUNCTION);
}

/* Comments, blank lines, a key of another; then what is wrong with the list. It is read for each plugin. */
Test(api_plugin_send, the_list_of_keys)
{
	char list[512] = "# keys\n\n \t";
	strcat(list, public(&other));
	strcat(list, public(&secret));
	strcat(list, public(&other));
	keys(list);
	cr_assert_eq(send_file("demo.so"), FAR_OK, "%s", err.text);
	keys("# none\n");
	refused("demo.so", FAR_DENIED, "none of the 0 keys in ");
	keys("\nnonsense\n");
	refused("demo.so", FAR_DENIED, "line 2 of the list of keys ");
	keys(public(&secret));
	chmod(path_of("keys"), 0666);
	refused("demo.so", FAR_DENIED, "keys has mode 666: others could replace the plugin");
	remove(path_of("keys"));
	refused("demo.so", FAR_DENIED, "cannot be used: No such file or directory");
	setenv("FAR_PLUGIN_KEYS", "keys", 1);
	refused("demo.so", FAR_DENIED, "cannot be used: not an absolute path");
}

/* A worker without a list has not the function. */
Test(api_plugin_send, without_a_list)
{
	own_end(agent);
	unsetenv("FAR_PLUGIN_KEYS");
	agent = own_begin(NULL);
	refused("demo.so", FAR_DENIED, "worker \"w0\" loads no plugins that are sent: start it with FAR_PLUGIN_KEYS");
}
