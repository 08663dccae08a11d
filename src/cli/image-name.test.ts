import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defaultName, withRegistry } from './image-name.ts'

test('image add: a reference without a registry is one of Docker Hub', () => {
  const full: Record<string, string> = {
    'python:3.12': 'docker.io/library/python:3.12',
    'team/tools': 'docker.io/team/tools',
    'docker.io/python': 'docker.io/python',
    'ghcr.io/team/tools:1': 'ghcr.io/team/tools:1',
    'localhost/tools': 'localhost/tools',
    'localhost:5000/tools:1': 'localhost:5000/tools:1',
    'python@sha256:ab': 'docker.io/library/python@sha256:ab',
  }
  for (const [short, reference] of Object.entries(full)) assert.equal(withRegistry(short), reference)
})

test('image add: the name is that of the repository with its tag', () => {
  const names: Record<string, string> = {
    'docker.io/library/python:3.12': 'python-3.12',
    'docker.io/library/alpine': 'alpine',
    'localhost:5000/team/tools:latest': 'tools',
    'ghcr.io/team/tools:1@sha256:ab': 'tools-1',
  }
  for (const [reference, name] of Object.entries(names)) assert.equal(defaultName(reference), name)
})
