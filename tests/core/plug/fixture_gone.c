/* A library whose users cannot find it at run time. */
int lathe_fixture_gone(void);

int lathe_fixture_gone(void)
{
    return 1;
}
