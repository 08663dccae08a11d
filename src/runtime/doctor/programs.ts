import { access, constants } from 'node:fs/promises'
import { run } from '../command.ts'
import type { HostCheck } from './check.ts'

/**
 * KVM_CREATE_VM, KVM_CREATE_VCPU, KVM_SET_TSS_ADDR, KVM_RUN: the device exists on hosts where no machine can run, nested ones
 * among them, and only the last call tells. (linux/kvm.h; an ARM machine must be described before it runs, so there the second tells.)
 */
const kvmAttempt = `
  open(my $kvm, "+<", "/dev/kvm") or die "/dev/kvm: $!\\n";
  my $vm = ioctl($kvm, 0xAE01, 0) or die "cannot make a machine: $!\\n";
  open(my $machine, "+<&=", $vm) or die "$!\\n";
  my $cpu = ioctl($machine, 0xAE41, 0) or die "cannot make a processor: $!\\n";
  exit 0 if ${process.arch === 'x64' ? 0 : 1};
  open(my $processor, "+<&=", $cpu) or die "$!\\n";
  ioctl($machine, 0xAE47, 0xfffbd000);
  ioctl($processor, 0xAE80, 0) or die "cannot run a machine: $!\\n";
`

/** Engines that Atoll can use instead of runc, or beside it. Nothing fails without them. */
export const optionalChecks: HostCheck[] = [
  {
    name: 'gVisor (runsc)',
    required: false,
    async run() {
      const version = await run(['runsc', '--version']).catch(() => undefined)
      if (version === undefined) return { state: 'missing', found: 'not found' }
      return { state: 'works', found: version.split('\n')[0] ?? '' }
    },
  },
  {
    name: 'KVM',
    required: false,
    async run() {
      const device = '/dev/kvm'
      if (
        !(await access(device, constants.R_OK | constants.W_OK).then(
          () => true,
          () => false,
        ))
      ) {
        return { state: 'missing', found: `no usable ${device}` }
      }
      await run(['perl', '-e', kvmAttempt])
      return { state: 'works', found: `${device}; a machine ran` }
    },
  },
  {
    name: 'Incus',
    required: false,
    async run() {
      const version = await run(['incus', 'version']).catch(() => undefined)
      if (version === undefined) return { state: 'missing', found: 'not found' }
      return { state: 'works', found: version.trim().replaceAll('\n', ', ') }
    },
  },
]
