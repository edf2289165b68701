/* SPDX-License-Identifier: BSD-3-Clause */
/* The stream of the store etcd://: its settings, the begin and the end of a client. The test's thread. */
#include "control/store_etcd.h"
#include "etcd_dir.h"
#include "fake_etcd_module.h"
#include "fake_net.h"

#include <dlfcn.h>
#include <errno.h>

static const char *const settings[] = {"FAR_ETCD_CA", "FAR_ETCD_CERT", "FAR_ETCD_KEY", "FAR_ETCD_USER",
				       "FAR_ETCD_PASSWORD_FILE"};
static struct fake_world *world;
static struct ctl_net *net;
static struct store_stream *stream;
static struct fake_etcd *fake;

static void setup(void)
{
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		unsetenv(settings[i]);
	etcd_dir_make();
	etcd_dir_link(getenv("FAKE_ETCD"));
	world = fake_world_create();
	net = fake_net_create(world);
	stream = store_stream_etcd(net, "h:1,h:2");
	void *module = dlopen(getenv("FAKE_ETCD"), RTLD_NOW | RTLD_LOCAL);
	cr_assert_not_null(module, "%s", dlerror());
	fake = dlsym(module, "fake_etcd");
	cr_assert_not_null(fake);
}

static void teardown(void)
{
	if (stream)
		stream->ops->destroy(stream);
	cr_assert(!fake->clients);
	net->ops->destroy(net);
	fake_world_destroy(world);
	own_dir_remove();
}

TestSuite(store_etcd, .init = setup, .fini = teardown);

static void opens(int want, const char *why)
{
	cr_assert_eq(stream->ops->open(stream), want);
	const char *text = stream->ops->why(stream);
	cr_assert(strstr(text, why), "\"%s\" lacks \"%s\"", text, why);
	if (!want)
		stream->ops->close(stream);
}

/* ---- settings ---- */

/* The group's key is for those who may read it: TLS, and one of user and certificate. */
Test(store_etcd, is_private)
{
	for (unsigned set = 0; set < 16; set++) {
		for (unsigned i = 0; i < 4; i++)
			set >> i & 1 ? setenv(settings[i], "x", 1) : setenv(settings[i], "", 1);
		bool want = (set & 1) && (set & (2 | 8));
		cr_assert_eq(store_etcd_is_private(), want, "%x", set);
	}
}

Test(store_etcd, settings_reach_the_module)
{
	opens(0, "");
	cr_assert_str_eq(fake->endpoints, "h:1,h:2");
	cr_assert(!strcmp(fake->user, "-") && !strcmp(fake->password, "-") && !strcmp(fake->ca, "-"));
	setenv("FAR_ETCD_CA", "/ca.pem", 1);
	setenv("FAR_ETCD_USER", "far", 1);
	put("password", "secret\r\nsecond line\n");
	char path[128];
	snprintf(path, sizeof path, "%s/password", top);
	chmod(path, 0600);
	setenv("FAR_ETCD_PASSWORD_FILE", path, 1);
	opens(0, "");
	cr_assert_str_eq(fake->user, "far");
	cr_assert_str_eq(fake->password, "secret");
	cr_assert_str_eq(fake->ca, "/ca.pem");
}

Test(store_etcd, a_password_that_cannot_be_read)
{
	char path[128];
	snprintf(path, sizeof path, "%s/password", top);
	setenv("FAR_ETCD_USER", "far", 1);
	opens(-EACCES, "set FAR_ETCD_PASSWORD_FILE to a file that holds it");
	setenv("FAR_ETCD_PASSWORD_FILE", path, 1);
	opens(-EACCES, "No such file or directory");
	cr_assert(strstr(stream->ops->why(stream), path));
	put("password", "");
	chmod(path, 0600);
	opens(-EACCES, "it is empty; write the password to it");
	put("password", "secret");
	static const mode_t open[] = {0640, 0604, 0620, 0602, 0610, 0601};
	for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
		chmod(path, open[i]);
		opens(-EACCES, "others can access it; chmod 600");
	}
	chmod(path, 0400);
	opens(0, "");
}

Test(store_etcd, without_the_module)
{
	setenv("FAR_MODULE_DIR", "/proc/no-such-directory", 1);
	opens(-ENOTSUP, "etcd:// needs the module libfarcall-etcd.so");
}

Test(store_etcd, the_reason_of_the_module)
{
	fake->create_error = "the certificate cannot be read";
	opens(-ENOMEM, "the certificate cannot be read");
}

/* Within a lease some attempts to renew it end. */
Test(store_etcd, times_of_attempts)
{
	static const struct {
		uint64_t lease_ns, timeout_ns;
	} cases[] = {{0, 3000000000}, {4000000000, 1000000000}, {60000000000, 3000000000}, {1000, 400000000}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		stream->lease_ns = cases[i].lease_ns;
		opens(0, "");
		cr_assert_eq(fake->lease_timeout_ns, cases[i].timeout_ns, "case %zu", i);
	}
}

/* ---- a client ---- */

static struct store_client *client(const char *group)
{
	struct store_client *c = store_client_create(stream);
	struct store_login login = {.who = {.rank = group[0] ? 1 : STORE_RANK_NONE, .incarnation = 1, .name = "w"},
				    .random = &random_kernel};
	stream = NULL; /* the client's from now on */
	snprintf(login.who.group, sizeof login.who.group, "%s", group);
	store_client_login(c, &login);
	return c;
}

static void steps(struct store_client *c)
{
	bool busy = true;
	for (int i = 0; busy && i < 100; i++) {
		busy = false;
		store_client_step(c, world->now, &busy);
	}
}

static struct store_client *connected(const char *group)
{
	struct store_client *c = client(group);
	steps(c);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTED, "%s", store_client_why(c));
	fake->log[0] = 0;
	return c;
}

/* A member that ends deletes its keys with its lease; if it is the last one, all that the group has written, too. */
Test(store_etcd, a_member_leaves)
{
	store_client_destroy(connected("g"));
	cr_assert_str_eq(fake->log, "revoke \ndelete farcall/g/ to farcall/g0\n");
}

Test(store_etcd, a_client_of_no_group_leaves)
{
	store_client_destroy(connected(""));
	cr_assert_str_eq(fake->log, "revoke \n");
}

/* Without a lease there is nothing to leave. */
Test(store_etcd, an_end_before_the_lease)
{
	fake->mute = true;
	struct store_client *c = client("g");
	steps(c);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTING);
	cr_assert_str_eq(fake->log, "grant \n");
	store_client_destroy(c);
	cr_assert_str_eq(fake->log, "grant \n");
}

/* Wrong settings do not change by another attempt; etcd in trouble may. */
Test(store_etcd, trouble_before_the_login)
{
	fake->trouble = -ETIMEDOUT;
	fake->mute = true;
	struct store_client *c = client("g");
	steps(c);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTING);
	cr_assert_str_eq(store_client_why(c), "the trouble and its remedy");
	fake->trouble = -EACCES;
	steps(c);
	world->now += 1000000000;
	steps(c);
	cr_assert_eq(store_client_connection(c), STORE_LOST);
	cr_assert_eq(store_client_error(c), -EACCES);
	cr_assert_str_eq(store_client_why(c), "the trouble and its remedy");
	store_client_destroy(c);
}

Test(store_etcd, trouble_of_a_member)
{
	struct store_client *c = connected("g");
	fake->trouble = -EACCES;
	steps(c);
	cr_assert_eq(store_client_connection(c), STORE_CONNECTED);
	cr_assert_str_eq(store_client_why(c), "the trouble and its remedy");
	store_client_destroy(c);
}

Test(store_etcd, shows_what_the_module_knows)
{
	fake->mute = true;
	fake->absent = 7;
	fake->arrived = 9;
	struct store_client *c = client("g");
	steps(c);
	cr_assert_eq(store_client_refused(c), 7u);
	cr_assert_eq(store_client_arrived(c), 0u, "nothing is held that a renewal could keep");
	fake->mute = false;
	steps(c);
	cr_assert_eq(store_client_arrived(c), 9u);
	store_client_destroy(c);
}
