import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type Draft,
  type DraftStep,
  emptyDraft,
  faultOf,
  manifestOfReference,
  manifestOfSteps,
  nameOfReference,
} from './draft.ts'

function stepsOf(...steps: Omit<DraftStep, 'key'>[]): Draft['steps'] {
  return steps.map((step, key) => ({ key, ...step }))
}

test('draft of an image: steps become those of a manifest, and what is empty is left out', () => {
  const draft: Draft = {
    ...emptyDraft,
    base: ' python ',
    runtimeMemoryMB: '512',
    startCommand: 'serve',
    steps: stepsOf(
      { kind: 'apt', text: 'jq\n ripgrep, less', path: '' },
      { kind: 'npm', text: "tsx@4 'odd", path: '' },
      { kind: 'run', text: 'echo a \\\n  b\n\necho c', path: '' },
      { kind: 'env', text: 'A=1\nB=x=y', path: '' },
      { kind: 'workdir', text: '/srv ', path: '' },
      { kind: 'file', text: 'é', path: '/srv/a' },
      { kind: 'pip', text: ' ', path: '' },
    ),
  }
  assert.deepEqual(manifestOfSteps(draft), {
    base: 'python',
    runtimeMemoryMB: 512,
    steps: [
      { type: 'apt_install', args: { packages: ['jq', 'ripgrep', 'less'] } },
      {
        type: 'run',
        args: {
          commands: [`npm install --global --no-audit --no-fund --no-update-notifier -- tsx@4 ''\\''odd'`],
        },
      },
      { type: 'run', args: { commands: ['echo a \\\n  b', 'echo c'] } },
      { type: 'env', args: { vars: { A: '1', B: 'x=y' } } },
      { type: 'workdir', args: { path: '/srv' } },
      { type: 'add_file', args: { path: '/srv/a', content: 'w6k=', encoding: 'base64' } },
    ],
  })
})

test('draft of an image: a variable without a value and a path that is not absolute are told', () => {
  const fault = (kind: DraftStep['kind'], text: string, path = '') => faultOf({ key: 1, kind, text, path })
  assert.match(fault('env', 'A=1\nB') ?? '', /Line 2/)
  assert.equal(fault('env', 'A='), undefined)
  assert.match(fault('workdir', 'srv') ?? '', /begins with/)
  assert.match(fault('file', 'text') ?? '', /begins with/)
  assert.equal(fault('file', ''), undefined)
})

test('draft of an image: a reference gets its registry, and the image a name', () => {
  const reference = (text: string) => manifestOfReference({ ...emptyDraft, reference: text }).oci
  assert.equal(reference('python:3.12'), 'docker.io/library/python:3.12')
  assert.equal(reference('team/tools'), 'docker.io/team/tools')
  assert.equal(reference(' ghcr.io/team/tools:1 '), 'ghcr.io/team/tools:1')
  assert.equal(nameOfReference('docker.io/library/python:3.12'), 'python-3.12')
  assert.equal(nameOfReference('ghcr.io/team/tools@sha256:5e'), 'tools')
})
