#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Debian's prometheus scrapes a group under load; every query of the Grafana dashboard returns data.

usage: prometheus.py FARCALL PROGRAM SOURCE-ROOT PROMETHEUS

PROGRAM is tests/e2e/api_metrics. Also: what the HTTP server refuses, and addresses that cannot be used.
"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

import openmetrics

try:
    from prometheus_client.openmetrics import parser
except ImportError:  # the package python3-prometheus-client cannot be downloaded
    parser = None

farcall, program, root, prometheus = sys.argv[1:5]
LIMIT_S = 250  # of each wait; the guard of the test is longer


def fail(text):
    sys.exit('prometheus.py: ' + text)


def query(port, path, method='GET', **headers):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=100)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def until(what, function):
    """Calls the function until it returns something."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        result = function()
        if result:
            return result
        time.sleep(0.2)
    return fail(what + ' did not happen')


def ports(environment):
    listed = subprocess.run([farcall, 'workers', '--json'], env=environment, capture_output=True, check=True, text=True)
    found = [w['metrics_port'] for w in json.loads(listed.stdout) if w.get('state') == 'ready']
    return found if len(found) == 2 else None


def check_server(port):
    status, body, headers = query(port, '/metrics')
    if status != 200 or not headers['Content-Type'].startswith('text/plain; version=0.0.4'):
        fail(f'/metrics: {status} {headers}')
    if 'farcall_info{group="default",worker="worker' not in body:
        fail('/metrics lacks farcall_info')
    # Names and labels as the format defines them, and each family once.
    sample = re.compile(r'[a-z_]+\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\} [0-9.e+-]+')
    for line in body.splitlines():
        if not line.startswith('# ') and not sample.fullmatch(line):
            fail('malformed: ' + line)
    heads = re.findall(r'^# TYPE (\S+)', body, re.M)
    if len(heads) != len(set(heads)) or len(heads) < 70:
        fail(f'{len(heads)} families, {len(set(heads))} names')
    for path, method, want in (('/', 'GET', 404), ('/metrics', 'POST', 405), ('/metrics', 'HEAD', 200)):
        if query(port, path, method)[0] != want:
            fail(f'{method} {path} is not {want}')


def check_openmetrics(port):
    """The format as its rules are, with the metrics that Prometheus' format has; and mistakes, which are found."""
    wanted = 'application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1'
    status, body, headers = query(port, '/metrics', Accept=wanted)
    if status != 200 or not headers['Content-Type'].startswith('application/openmetrics-text; version=1.0.0'):
        fail(f'OpenMetrics: {status} {headers}')
    families = openmetrics.parse(body)
    if parser:
        theirs = {f.name: (f.type, f.unit) for f in parser.text_string_to_metric_families(body)}
        ours = {f.name: (f.head['TYPE'], f.head.get('UNIT', '')) for f in families.values()}
        if theirs != ours:
            fail(f'prometheus_client reads {set(theirs.items()) ^ set(ours.items())}')
        print('prometheus_client reads', len(theirs), 'metrics')
    names = {name for family in families.values() for name in family.sample_names()}
    plain = query(port, '/metrics')[1]
    samples = set(re.findall(r'^([a-z_]+)\{', plain, re.M))
    if len(samples) < 70 or not samples <= names:
        fail(f'OpenMetrics lacks {samples - names}')
    for old, new in (('# EOF', '# END'), ('_total{', '_sum{'), ('# UNIT farcall_uptime seconds', ''),
                     ('calls_sent counter', 'calls_sent gauge'), ('le="+Inf"', 'le="1e9"'), ('} 1\n', '} -1\n'),
                     ('# UNIT farcall_uptime_seconds seconds\n', ''), ('worker="', 'group="'), ('# TYPE', '\n# TYPE')):
        try:
            openmetrics.parse(body.replace(old, new))
        except ValueError:
            continue
        if old in body:
            fail(f'{old} -> {new}: not noticed')


def check_scrapes(server):
    """Prometheus takes OpenMetrics by itself: it knows the units, which the other format lacks."""
    def has_units():
        status, body, _ = query(server, '/api/v1/metadata?metric=farcall_uptime_seconds')
        found = json.loads(body)['data'].get('farcall_uptime_seconds') if status == 200 else None
        return found and found[0]['unit'] == 'seconds'
    until('a scrape in OpenMetrics', has_units)


def check_refusals(environment):
    for at, text in (('nonsense', 'expected HOST:PORT'), ('127.0.0.1:70000', 'expected HOST:PORT'),
                     ('127.0.0.1:1x', 'expected HOST:PORT'), ('example:9', 'is no IP address'),
                     ('192.0.2.1:9', 'Cannot assign requested address')):
        done = subprocess.run([farcall, 'run', '-n', '1', '--', program, 'load'], capture_output=True, text=True,
                              env=dict(environment, FAR_METRICS=at), timeout=250, check=False)
        if done.returncode == 0 or text not in done.stderr:
            fail(f'FAR_METRICS={at}: {done.returncode}, {done.stderr}')


def queries():
    with open(root + '/docker/grafana/farcall.json', encoding='utf-8') as f:
        board = json.load(f)
    found = [t['expr'] for p in board['panels'] for t in p['targets']]
    if len(found) < 20:
        fail(f'the dashboard has {len(found)} queries')
    values = {'$__rate_interval': '10s', '$group': '.*', '$worker': '.*'}
    for name, value in values.items():
        found = [q.replace(name, value) for q in found]
    return found


def has_data(server, wanted):
    status, body, _ = query(server, '/api/v1/query?' + urllib.parse.urlencode({'query': wanted}))
    if status == 503:  # it listens before it is ready
        return None
    if status != 200:
        fail(f'{wanted}: {body}')
    values = [float(r['value'][1]) for r in json.loads(body)['data']['result']]
    return values and all(v == v for v in values)  # not NaN, which a quantile of nothing is


def serve(work, targets):
    """Starts prometheus on a free port: the process and the port."""
    with open(root + '/docker/prometheus/prometheus.yml', encoding='utf-8') as f:
        config = f.read().replace('scrape_interval: 5s', 'scrape_interval: 1s')
    config, n = re.subn(r'targets: \[.*\]', 'targets: ' + json.dumps([f'127.0.0.1:{p}' for p in targets]), config)
    if n != 1:
        fail('prometheus.yml has no targets')
    with open(work + '/prometheus.yml', 'w', encoding='utf-8') as f:
        f.write(config)
    log = open(work + '/log', 'w+', encoding='utf-8')
    process = subprocess.Popen([prometheus, '--config.file=' + work + '/prometheus.yml',
                                '--storage.tsdb.path=' + work + '/data', '--web.listen-address=127.0.0.1:0'],
                               stdout=log, stderr=log)

    def listening():
        if process.poll() is not None:
            with open(work + '/log', encoding='utf-8') as f:
                fail('prometheus ended: ' + f.read())
        for fd in os.listdir(f'/proc/{process.pid}/fd'):
            try:
                inode = re.match(r'socket:\[(\d+)\]', os.readlink(f'/proc/{process.pid}/fd/{fd}'))
            except OSError:
                continue
            for line in open('/proc/net/tcp', encoding='ascii') if inode else ():
                field = line.split()
                if field[3] == '0A' and field[9] == inode[1]:
                    return int(field[1].split(':')[1], 16)
        return None
    return process, until('a listening prometheus', listening)


def main():
    started = []
    with tempfile.TemporaryDirectory() as work:
        environment = dict(os.environ, FAR_RUNTIME_DIR=work + '/run', FAR_METRICS='127.0.0.1:0', FAR_METRICS_SAMPLE='4')
        try:
            check_refusals(environment)
            started.append(subprocess.Popen([farcall, 'run', '-n', '2', '--', program, 'load'], env=environment))
            targets = until('a group of two', lambda: ports(environment))
            check_server(targets[0])
            check_openmetrics(targets[0])
            process, server = serve(work, targets)
            started.append(process)
            check_scrapes(server)
            for wanted in queries():
                until(f'data for {wanted}', lambda q=wanted: has_data(server, q))
                print('data:', wanted)
            # What is not there has none: the check can fail.
            if has_data(server, 'farcall_no_such_metric'):
                fail('a metric that does not exist has data')
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
                process.wait()


main()
